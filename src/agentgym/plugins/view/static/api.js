// Requests to the server of this page. The token stays in the address.
const token = new URLSearchParams(location.search).get('open') || '';
const headers = {'X-Agentgym-Token': token};

export class ApiFailure extends Error {}

async function ask(path, signal) {
  let response;
  try {
    response = await fetch(path, {headers, signal});
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiFailure('The viewer does not answer. Start `agentgym view` again.');
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new ApiFailure(body.error?.message || `The viewer answered ${response.status}.`);
}

/** Return the JSON at a path of the API. */
export async function get(path, query = {}, signal = undefined) {
  const text = new URLSearchParams(query).toString();
  return (await ask(`/api/${path}${text ? `?${text}` : ''}`, signal)).json();
}

export const runPath = (run) => `runs/${encodeURIComponent(run)}`;

/** Call `changed` whenever `what` has another hash than in `cursor`, that of shown data.
 *  `path` is that of the list of runs, or of one; `what` is runs, steps or rollouts. */
export function watch(path, what, cursor, changed) {
  const stop = new AbortController();
  let known = cursor;
  (async () => {
    while (!stop.signal.aborted) {
      try {
        const response = await ask(`/api/${path}events`, stop.signal);
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        let rest = '';
        for (;;) {
          const {value, done} = await reader.read();
          if (done) break;
          rest += value;
          const frames = rest.split('\n\n');
          rest = frames.pop();
          for (const frame of frames) {
            const found = JSON.parse(frame.slice(6));
            if (found[what] !== known[what]) changed();
            known = found;
          }
        }
      } catch {
        if (stop.signal.aborted) return;
      }
      await new Promise((done) => setTimeout(done, 3000));
    }
  })();
  return () => stop.abort();
}
