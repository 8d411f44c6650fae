// Line charts of uPlot in the colours of the page.
import {html, useEffect, useRef} from './dom.js';
import {number, percent} from './format.js';

const COLOURS = 8;
// Whole steps alone: 1, 2, 5, 10, …
const STEPS = [0, 1, 2, 3, 4, 5, 6].flatMap((power) => [1, 2, 5].map((each) => each * 10 ** power));

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

/** Decimals with which an axis's values differ. */
const decimals = ([first, second]) =>
  Math.min(6, Math.max(0, Math.ceil(-Math.log10(second - first || 1))));

/** Draw lines over steps: `x` numbers, `lines` with a name and values. */
export function Chart({title, x, lines, share}) {
  const place = useRef(null);
  useEffect(() => {
    const holder = place.current;
    if (!x.length || !holder) return undefined;
    const axis = {
      stroke: colour('--faint'),
      grid: {stroke: colour('--line'), width: 1},
      ticks: {stroke: colour('--line'), width: 1},
      font: '12px system-ui, sans-serif',
    };
    const width = () => holder.clientWidth;
    const unit = share ? 'share' : /\((.+)\)/.exec(title)?.[1] ?? title.split(/ by | of /)[0].toLowerCase();
    const drawn = new window.uPlot({
      width: width(),
      height: 200,
      scales: {x: {time: false}, y: share ? {range: [0, 1]} : {}},
      axes: [{...axis, label: 'step', labelSize: 18, incrs: STEPS}, {...axis, size: 56, label: unit, labelSize: 18, values: (_, found) => found.map(
        (value) => (share ? percent(value) : number(value, decimals(found))))}],
      series: [
        {label: 'step'},
        ...lines.map((line, index) => ({
          label: line.name,
          stroke: colour(`--line-${index % COLOURS}`),
          dash: index >= COLOURS ? [6, 3] : undefined,
          width: 1.5,
          spanGaps: true,
          points: {show: x.length < 40, size: 5},
          value: (_, value) => (share ? percent(value) : number(value)),
        })),
      ],
    }, [x, ...lines.map((line) => line.values)], holder);
    const seen = new ResizeObserver(() => drawn.setSize({width: width(), height: 200}));
    seen.observe(holder);
    return () => {
      seen.disconnect();
      drawn.destroy();
    };
  }, [x, lines]);
  const last = lines.map((line) => {
    const known = line.values.filter((value) => value != null);
    return `${line.name} ${number(known.at(-1))}`;
  });
  return html`<figure class="chart">
    <figcaption>${title}</figcaption>
    <div ref=${place} role="img" aria-label=${`${title} by step; last: ${last.join(', ')}`}></div>
    ${!x.length && html`<p class="note">No step has ended yet.</p>`}
  </figure>`;
}

/** Put lines with different steps on one axis. */
export function joined(lines) {
  const x = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  const place = new Map(x.map((step, index) => [step, index]));
  return {
    x,
    lines: lines.map((line) => {
      const values = new Array(x.length).fill(null);
      line.x.forEach((step, index) => { values[place.get(step)] = line.values[index]; });
      return {name: line.name, values};
    }),
  };
}

/** Mean of each value with those before it, so that a noisy line can be read. */
export function smooth(values, size = 10) {
  return values.map((_, index) => {
    const known = values.slice(Math.max(0, index - size + 1), index + 1)
      .filter((value) => value != null);
    return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
  });
}
