// The list of runs.
import {html, useState} from './dom.js';
import {moment, percent, plural, seconds, span} from './format.js';
import {at, Failure, go, link, Loading, moveRow, useApi, useChanges, useKeys} from './parts.js';

const COLUMNS = [
  ['name', 'run', (row) => row.name],
  ['status', 'status', (row) => row.status],
  ['created', 'started', (row) => row.created],
  ['before', 'success before', (row) => row.before?.pass_1.value],
  ['after', 'after', (row) => row.after?.pass_1.value],
  ['reliability', 'tool reliability', (row) => row.after?.tool_reliability.value],
  ['episodes', 'rollouts', (row) => row.episodes],
  ['wall', 'time', (row) => row.wall_seconds],
  ['cost', 'cost', (row) => row.machine?.cost],
];

function sorted(rows, name, down) {
  const value = COLUMNS.find((column) => column[0] === name)[2];
  const key = (row) => value(row) ?? '';
  return [...rows].sort((a, b) =>
    (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (down ? -1 : 1));
}

export function RunsPage() {
  const {data, error, reload} = useApi('runs', {}, []);
  useChanges('', 'runs', {data, error}, reload);
  const [sort, setSort] = useState(['created', true]);
  const [text, setText] = useState('');
  const [ticked, setTicked] = useState([]);
  useKeys({
    j: () => moveRow(1),
    k: () => moveRow(-1),
    '/': () => document.getElementById('find').focus(),
  });
  if (error) return html`<${Failure} error=${error} />`;
  if (!data) return html`<${Loading} />`;
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const kept = data.runs.filter((row) => {
    const all = [row.name, row.status, row.scenario, row.framework, row.model].join(' ').toLowerCase();
    return words.every((word) => all.includes(word));
  });
  const tick = (name, on) =>
    setTicked(on ? [...ticked, name] : ticked.filter((each) => each !== name));
  return html`
    <h1>Runs</h1>
    <div class="filters">
      <label>Find <input id="find" type="search" value=${text}
        onInput=${(event) => setText(event.target.value)} /></label>
      <button disabled=${ticked.length < 2}
        onClick=${() => go('/compare', {runs: ticked.join(',')})}>
        Compare ${ticked.length > 1 ? ticked.length : 'ticked'} runs</button>
    </div>
    ${!data.runs.length && html`<p class="note" id="no-runs">This folder has no runs
      yet. Start one in another terminal: <code>agentgym train coding --framework langchain</code>.
      It is listed as soon as it begins. Runs of another folder are shown
      by <code>agentgym view --output FOLDER</code>.</p>`}
    <div class="wide"><table class="cards">
      <thead><tr><th><span class="unseen">compare</span></th>
      ${COLUMNS.map(([name, label]) => html`<th aria-sort=${sort[0] !== name ? 'none'
        : sort[1] ? 'descending' : 'ascending'}><button class="plain"
          onClick=${() => setSort([name, sort[0] === name ? !sort[1] : true])}>
          ${label}</button></th>`)}<th>ended</th></tr></thead>
      <tbody>${sorted(kept, ...sort).map((row) => html`<tr key=${row.name}>
        <td><input type="checkbox" aria-label=${`compare ${row.name}`}
          checked=${ticked.includes(row.name)}
          onChange=${(event) => tick(row.name, event.target.checked)} /></td>
        <td><a class="row" href=${link(at(row.name))}>${row.name}</a>
          <small>${[row.scenario, row.framework, row.model].filter(Boolean).join(' · ')}</small></td>
        <td><span class=${`outcome ${row.status}`}>${row.status}</span></td>
        <td data-name="started">${moment(row.created)}</td>
        <td data-name="success before">${span(row.before?.pass_1)}</td>
        <td data-name="after">${span(row.after?.pass_1)}</td>
        <td data-name="tool reliability">${percent(row.after?.tool_reliability.value)}</td>
        <td data-name="rollouts">${row.episodes == null ? '–' : row.episodes.toLocaleString('en')}</td>
        <td data-name="time">${seconds(row.wall_seconds)}</td>
        <td data-name="cost">${row.machine ? `$${row.machine.cost ?? '?'}` : '–'}</td>
        <td data-name="ended">${row.stopped || row.problem || ''}</td>
      </tr>`)}</tbody>
    </table></div>
    <p class="note">${plural(kept.length, 'run')} shown. Success is the share of held-out
      tasks that were solved, with its 95 % interval.</p>`;
}
