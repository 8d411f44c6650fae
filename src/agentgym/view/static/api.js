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

/** Call `changed` whenever a run has new `what`: steps or rollouts; return how to stop. */
export function watch(run, what, changed) {
  const stop = new AbortController();
  (async () => {
    for (let turn = 0; !stop.signal.aborted; turn += 1) {
      if (turn) changed(); // the connection was lost: something may have been missed
      try {
        const response = await ask(`/api/${runPath(run)}/events`, stop.signal);
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        let rest = '';
        for (;;) {
          const {value, done} = await reader.read();
          if (done) break;
          rest += value;
          const frames = rest.split('\n\n');
          rest = frames.pop();
          for (const frame of frames) {
            if (JSON.parse(frame.slice(6))[what]) changed();
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
