// The table of rollouts: filtered and sorted by the server, a page at a time.
import {html, useEffect, useRef, useState} from './dom.js';
import {runPath} from './api.js';
import {number, percent, plural} from './format.js';
import {at, Failure, go, link, Loading, moveRow, Outcome, plain, useApi, useChanges, useKeys} from './parts.js';

const SIZE = 50;
const REFRESH_MS = 4000;
const FILTERS = [['phase', 'for'], ['split', 'split'], ['held_out', 'held-out set'],
  ['step', 'step'], ['family', 'family'], ['level', 'level'], ['outcome', 'outcome'],
  ['reason', 'reason'], ['roles', 'role'], ['rules', 'broken rule']];
const COLUMNS = [['place', 'ended'], ['rollout_id', 'rollout'], ['step', 'step'],
  ['family', 'family'], ['outcome', 'outcome'], ['reward', 'reward'],
  ['right_tool', 'right tool'], ['right_arguments', 'right arguments'],
  ['tool_calls', 'calls'], ['errors', 'errors']];

export function RolloutsPage({run, query}) {
  const {page: shown, ...asked} = query;
  const page = Number(shown || 0);
  const sort = query.sort || '-place';
  const [turn, setTurn] = useState(0);
  const typed = useRef(0);
  const facets = useApi(`${runPath(run)}/facets`, {}, [run, turn]);
  const {data, error} = useApi(`${runPath(run)}/rollouts`,
    {...asked, sort, offset: page * SIZE, limit: SIZE}, [run, JSON.stringify(query), turn]);
  const waiting = useRef(null);
  useChanges(`${runPath(run)}/`, 'rollouts', {data, error}, () => {
    waiting.current ??= setTimeout(() => {
      waiting.current = null;
      setTurn((now) => now + 1);
    }, REFRESH_MS);
  });
  useEffect(() => () => clearTimeout(waiting.current), []);
  const here = at(run, 'rollouts');
  const choose = (name, value) => {
    const {page: _, [name]: __, ...rest} = query;
    go(here, {...rest, [name]: value});
  };
  const turnTo = (next) => go(here, {...query, page: next || ''});
  const pages = Math.ceil((data?.total || 0) / SIZE);
  useKeys({
    j: () => moveRow(1),
    k: () => moveRow(-1),
    '/': () => document.getElementById('find').focus(),
    n: () => page + 1 < pages && turnTo(page + 1),
    p: () => page > 0 && turnTo(page - 1),
  });
  const write = (event) => {
    const {value} = event.target;
    clearTimeout(typed.current);
    typed.current = setTimeout(() => choose('text', value), 150);
  };
  const active = Object.keys(asked).filter((name) => name !== 'sort');
  return html`
    <h1>Rollouts</h1>
    <div class="filters">
      <label>Find <input id="find" type="search" value=${query.text || ''} onInput=${write}
        placeholder="instruction, call, error, id" /></label>
      ${FILTERS.map(([name, label]) => (facets.data?.[name]?.length > 0 || query[name]) && html`
        <label key=${name}>${label}
          <select id=${`by-${name}`} value=${query[name] || ''}
            onChange=${(event) => choose(name, event.target.value)}>
            <option value="">all</option>
            ${(facets.data?.[name] || [[query[name], '']]).map(([value, count]) => html`
              <option value=${value}>${plain(String(value))} (${number(count)})</option>`)}
          </select></label>`)}
      <label><input id="wrong-argument" type="checkbox" checked=${Boolean(query.wrong_argument)}
        onChange=${(event) => choose('wrong_argument', event.target.checked ? '1' : '')} />
        right tool, wrong argument
        ${facets.data && ` (${number(facets.data.wrong_argument)})`}</label>
      ${active.length > 0 && html`<button onClick=${() => go(here)}>Clear</button>`}
    </div>
    ${(error || facets.error) && html`<${Failure} error=${error || facets.error} />`}
    ${!data && !error && html`<${Loading} />`}
    ${data && html`
      <p class="note" role="status">${plural(data.total, 'rollout')}
        ${data.is_loading && ' so far; the store is still being read'}
        ${pages > 1 && `, page ${page + 1} of ${pages.toLocaleString('en')}`}</p>
      ${data.note && html`<p class="note">${data.note}</p>`}
      <div class="wide"><table class="cards">
        <thead><tr>${COLUMNS.map(([name, label]) => html`<th aria-sort=${
          sort === name ? 'ascending' : sort === `-${name}` ? 'descending' : 'none'}>
          <button class="plain" onClick=${() =>
            go(here, {...asked, sort: sort === `-${name}` ? name : `-${name}`})}>${label}</button></th>`)}
          <th>task</th></tr></thead>
        <tbody>${data.rows.map((row) => html`<tr key=${row.rollout_id}>
          <td class="count" data-name="ended">${row.place ?? '–'}</td>
          <td><a class="row" href=${link(at(run, 'rollout', row.rollout_id))}>${row.rollout_id}</a></td>
          <td class="count" data-name="step">${row.step ?? '–'}</td>
          <td data-name="family">${row.family}</td>
          <td><${Outcome} value=${row.outcome} /> <small>${row.reason}</small></td>
          <td class="count" data-name="reward">${number(row.reward, 2)}</td>
          <td class="count" data-name="right tool">${percent(row.right_tool)}</td>
          <td class="count" data-name="right arguments">${percent(row.right_arguments)}</td>
          <td class="count" data-name="calls">${row.tool_calls}</td>
          <td data-name="errors" class=${`count ${row.errors ? 'red' : ''}`}>${row.errors}</td>
          <td class="instruction"><bdi>${plain(row.instruction)}</bdi></td></tr>`)}
        </tbody></table></div>
      <p class="actions">
        <button disabled=${page === 0} onClick=${() => turnTo(page - 1)}>Previous page</button>
        ${' '}<button disabled=${page + 1 >= pages} onClick=${() => turnTo(page + 1)}>Next page</button></p>`}`;
}
