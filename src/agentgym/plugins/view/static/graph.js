// Who of a team spoke after whom: roles on a circle, an arrow for each turn.
import {html} from './dom.js';
import {number, plural} from './format.js';
import {plain} from './parts.js';

const WIDTH = 560;
const HEIGHT = 320;
const SIZE = {x: 60, y: 16};
const LONGEST = 14;

const short = (name) => (name.length > LONGEST ? `${name.slice(0, LONGEST - 1)}…` : name);

function places(names) {
  return new Map(names.map((name, index) => {
    const angle = (2 * Math.PI * index) / names.length - Math.PI / 2;
    return [name, {
      x: WIDTH / 2 + (WIDTH / 2 - SIZE.x - 20) * Math.cos(angle),
      y: HEIGHT / 2 + (HEIGHT / 2 - SIZE.y - 34) * Math.sin(angle),
    }];
  }));
}

/** Where a line from a role's middle leaves its frame. */
function edge(from, to) {
  const dx = to.x - from.x;
  const dy = to.y - from.y;
  const share = Math.min(SIZE.x / Math.max(Math.abs(dx), 1e-6), SIZE.y / Math.max(Math.abs(dy), 1e-6));
  return {x: from.x + share * dx, y: from.y + share * dy};
}

function Turn({turn, place, width, arrow}) {
  const from = place.get(turn.from);
  const to = place.get(turn.to);
  if (turn.from === turn.to) {
    const y = from.y - SIZE.y;
    return html`<path class="turn" stroke-width=${width} marker-end=${arrow}
        d=${`M ${from.x - 18} ${y} C ${from.x - 34} ${y - 34}, ${from.x + 34} ${y - 34}, ${from.x + 18} ${y - 2}`} />
      <text class="times" x=${from.x} y=${y - 28}>${number(turn.count)}</text>`;
  }
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(dx, dy) || 1;
  // Bent to one side, so that the way back stays apart.
  const bend = {x: (from.x + to.x) / 2 - (26 * dy) / length, y: (from.y + to.y) / 2 + (26 * dx) / length};
  const [start, end] = [edge(from, bend), edge(to, bend)];
  return html`<path class="turn" stroke-width=${width} marker-end=${arrow}
      d=${`M ${start.x} ${start.y} Q ${bend.x} ${bend.y} ${end.x} ${end.y}`} />
    <text class="times" x=${bend.x} y=${bend.y}>${number(turn.count)}</text>`;
}

/** Draw a graph; `name` is its own on the page. */
export function Graph({graph, caption, name: own}) {
  const names = Object.keys(graph.roles);
  const place = places(names);
  const most = Math.max(1, ...graph.turns.map((turn) => turn.count));
  const said = graph.turns.map((turn) =>
    `${plain(turn.from)}, then ${plain(turn.to)}: ${turn.count}`).join('; ');
  return html`<figure class="graph"><figcaption>${caption}</figcaption>
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${`${caption}. ${said}`}>
      <defs><marker id=${`arrow-${own}`} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9"
        markerUnits="userSpaceOnUse" orient="auto"><path class="head" d="M 0 0 L 8 4 L 0 8 z" /></marker></defs>
      ${graph.turns.map((turn) => html`<${Turn} turn=${turn} place=${place}
        width=${1 + (3 * turn.count) / most} arrow=${`url(#arrow-${own})`} />`)}
      ${names.map((name) => {
        const at = place.get(name);
        return html`<g><title>${plain(name)}: ${plural(graph.roles[name], 'model call')}</title>
          <rect x=${at.x - SIZE.x} y=${at.y - SIZE.y} width=${2 * SIZE.x} height=${2 * SIZE.y} rx="6" />
          <text x=${at.x} y=${at.y + 4}>${short(plain(name))} ${number(graph.roles[name])}</text></g>`;
      })}</svg>
    <details><summary>As a table</summary><table>
      <thead><tr><th>role</th><th>then</th><th class="count">times</th></tr></thead>
      <tbody>${graph.turns.map((turn) => html`<tr><td>${plain(turn.from)}</td>
        <td>${plain(turn.to)}</td><td class="count">${number(turn.count)}</td></tr>`)}</tbody></table></details>
  </figure>`;
}
