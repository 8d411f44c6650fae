// Line charts of uPlot in the colours of the page.
import {html, useEffect, useRef} from './dom.js';
import {number} from './format.js';

const COLOURS = 8;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

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
    const drawn = new window.uPlot({
      width: width(),
      height: 180,
      scales: {x: {time: false}, y: share ? {range: [0, 1]} : {}},
      axes: [axis, {...axis, size: 56, values: (_, found) => found.map(
        (value) => (share ? `${Math.round(100 * value)} %` : number(value, 2)))}],
      series: [
        {label: 'step'},
        ...lines.map((line, index) => ({
          label: line.name,
          stroke: colour(`--line-${index % COLOURS}`),
          dash: index >= COLOURS ? [6, 3] : undefined,
          width: 1.5,
          spanGaps: true,
          points: {show: x.length < 40, size: 5},
          value: (_, value) => (value == null ? '–' : number(value)),
        })),
      ],
    }, [x, ...lines.map((line) => line.values)], holder);
    const seen = new ResizeObserver(() => drawn.setSize({width: width(), height: 180}));
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
