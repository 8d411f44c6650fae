// A run: its curves, ledger, confusion matrix and warnings; several runs in one picture.
import {html, useEffect, useMemo, useState} from './dom.js';
import {get, runPath} from './api.js';
import {Chart, joined, smooth} from './charts.js';
import {number, plural, seconds, span} from './format.js';
import {Graph} from './graph.js';
import {at, Failure, go, link, Loading, useApi, useChanges, useKeys} from './parts.js';

const CHARTS = [
  ['Success and reliability', ['success_rate', 'tool_reliability'], true],
  ['Right tool and arguments', ['right_tool', 'right_arguments'], true],
  ['Reward', ['reward'], false],
  ['Sampled tokens of a step', ['sampled_tokens'], false],
  ['KL to the policy that sampled (nats)', ['kl'], false],
  ['Entropy (nats)', ['entropy'], false],
  ['Log-probability gap between sampler and learner (nats)', ['logprob_gap'], false],
  ['Gradient norm', ['grad_norm'], false],
];
const GROUPED = [['success', 'Success', true], ['tool_reliability', 'Tool reliability', true],
  ['right_tool', 'Right tool', true], ['right_arguments', 'Right arguments', true],
  ['reward', 'Reward', false], ['model_calls', 'Model calls of a rollout', false],
  ['tokens', 'Sampled tokens of a rollout', false],
  ['kl', 'KL to the policy that sampled (nats)', false], ['entropy', 'Entropy (nats)', false],
  ['gap', 'Log-probability gap between sampler and learner (nats)', false]];
const NAMES = {family: 'family', level: 'level', roles: 'role'};
const METRICS = [['right_tool', 'right tool'], ['right_arguments', 'right arguments'],
  ['pass_1', 'success (pass^1)'], ['pass_k', 'all attempts succeed (pass^k)'],
  ['tool_reliability', 'tool reliability']];

const drawn = (values, isSmooth) => (isSmooth ? smooth(values) : values);

function Curves({curves, isSmooth}) {
  return CHARTS.map(([title, names, share]) => {
    const known = names.filter((name) => curves[name].some((value) => value != null));
    const lines = known.map((name) => ({
      name: name.replaceAll('_', ' '), values: drawn(curves[name], isSmooth),
    }));
    return known.length > 0 && html`<${Chart} title=${title} x=${curves.step}
      lines=${lines} share=${share} key=${title} />`;
  });
}

function Grouped({run, by, isSmooth, turn}) {
  const {data, error} = useApi(`${runPath(run)}/curves`, {by}, [run, by, turn]);
  if (error) return html`<${Failure} error=${error} />`;
  if (!data) return html`<${Loading} />`;
  const names = [...new Set(data.rows.map((row) => row.name))]
    .filter((name) => name != null && name !== '');
  if (!names.length) return html`<p class="note">This run has none${by === 'roles' && ': one agent'
    + ' attempts its tasks, or no rollout of a team has ended'}.</p>`;
  const recorded = GROUPED.filter(([field]) => data.rows.some((row) => row[field] != null));
  return recorded.map(([field, title, share]) => {
    const {x, lines} = joined(names.map((name) => {
      const own = data.rows.filter((row) => row.name === name);
      return {name: String(name), x: own.map((row) => row.step),
        values: drawn(own.map((row) => row[field]), isSmooth)};
    }));
    return html`<${Chart} title=${`${title} by ${NAMES[by]}`} x=${x} lines=${lines} share=${share} key=${title} />`;
  });
}

function Findings({findings}) {
  if (!findings.length) return html`<p class="note">Nothing stands in the way of learning.</p>`;
  return html`<ul class="findings">${findings.map((found) => html`
    <li class=${found.severity}><b>${found.title}</b> <small>${found.severity}</small>
      <p>${found.evidence}</p><p class="note">${found.advice}</p></li>`)}</ul>`;
}

function Ledger({ledger}) {
  const rows = [['trained', '', ledger.trained],
    ...Object.entries(ledger.masked).map(([why, count]) => ['masked', why, count]),
    ...Object.entries(ledger.dropped).map(([why, count]) => ['dropped', why, count])];
  const roles = Object.entries(ledger.roles || {});
  return html`<table>
    <thead><tr><th>bucket</th><th>reason</th><th class="count">model calls</th></tr></thead>
    <tbody>${rows.map(([verb, why, count]) => html`<tr><td>${verb}</td><td class="instruction">${why}</td>
      <td class="count">${number(count)}</td></tr>`)}
      <tr><th>all</th><td></td><td class="count">${number(ledger.calls)}</td></tr></tbody></table>
    ${roles.length > 1 && html`<table>
      <thead><tr><th>role</th><th class="count">calls</th><th class="count">trained</th></tr></thead>
      <tbody>${roles.map(([name, one]) => html`<tr><td>${name}</td>
        <td class="count">${number(one.calls)}</td><td class="count">${number(one.trained)}</td></tr>`)}
      </tbody></table>`}`;
}

function Confusion({run, phase}) {
  const {data, error} = useApi(`${runPath(run)}/confusion`, {phase}, [run, phase]);
  if (error) return html`<${Failure} error=${error} />`;
  if (!data) return html`<${Loading} />`;
  if (!data.matrix) return html`<p class="note">${data.rollouts ? data.problem
    : 'No rollout of this measurement is in the store yet.'}</p>`;
  const {counts} = data.matrix;
  const rows = Object.keys(counts).filter((row) => Object.keys(counts[row]).length);
  const columns = [...new Set(rows.flatMap((row) => Object.keys(counts[row])))];
  return html`<div class="wide"><table class="confusion">
    <caption>Tool needed (rows), tool called (columns), in ${plural(data.rollouts, 'rollout')}</caption>
    <thead><tr><th></th>${columns.map((name) => html`<th>${name}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr><th>${row}</th>${columns.map((column) => {
      const count = counts[row][column] || 0;
      const kind = row === column ? 'right' : count ? 'off' : '';
      return html`<td class=${`count ${kind}`}>${count || ''}</td>`;
    })}</tr>`)}</tbody></table></div>`;
}

function Measured({sets, run}) {
  return sets.map((set) => html`<div class="wide"><table>
    <caption>${set.name}: ${plural(set.before.tasks, 'task')}</caption>
    <thead><tr><th></th><th>before</th>${set.warm && html`<th>warm start</th>`}<th>after</th></tr></thead>
    <tbody>${METRICS.map(([name, label]) => html`<tr><td>${label}</td>
      <td>${span(set.before[name])}</td>${set.warm && html`<td>${span(set.warm[name])}</td>`}<td>${span(set.after?.[name])}</td></tr>`)}</tbody>
  </table></div>`);
}

function Families({families, run}) {
  if (families.length < 2) return null;
  return html`<h2>Success by family of tasks</h2>
    <div class="wide"><table>
    <thead><tr><th>family</th><th>before</th><th>after</th><th>beyond chance</th></tr></thead>
    <tbody>${families.map((row) => html`<tr class=${row.change.startsWith('worse') ? 'worse' : ''}>
      <td><a class="row" href=${link(at(run, 'rollouts'),
        {family: row.name, held_out: 'held-out', phase: row.after ? 'after' : 'before',
          outcome: 'failed'})}>${row.name}</a></td>
      <td>${span(row.before)}</td><td>${span(row.after)}</td>
      <td>${row.change}</td></tr>`)}
    </tbody></table></div>
    <p class="note">A family opens its failed rollouts. Beyond chance: an exact test
      over the family's tasks, corrected for the number of families (Holm).</p>`;
}

function Verdict({effect}) {
  if (!effect) return null;
  return html`${effect.parts.map((words) => html`<p class="verdict">${words}</p>`)}
    <p class="verdict"><b>${effect.words}</b></p>
    ${effect.better && html`<p>${effect.better}</p>`}
    <p class=${effect.is_worse ? 'failure' : ''}>${effect.worse}</p>`;
}

export function RunPage({run}) {
  const [turn, setTurn] = useState(0);
  const [by, setBy] = useState('');
  const [isSmooth, setSmooth] = useState(true);
  const [phase, setPhase] = useState('after');
  const {data, error} = useApi(runPath(run), {}, [run, turn]);
  useChanges(`${runPath(run)}/`, 'steps', {data, error}, () => setTurn((now) => now + 1));
  useKeys({'/': () => go(at(run, 'rollouts'))});
  if (error) return html`<${Failure} error=${error} />`;
  if (!data) return html`<${Loading} />`;
  if (data.problem && !data.config) return html`<p class="failure">${data.problem}</p>`;
  return html`
    <h1>${run}</h1>
    <p><span class=${`outcome ${data.status}`}>${data.status}</span>
      ${' '}${[data.scenario, data.framework, data.model].filter(Boolean).join(' · ')}
      ${' '}· ${plural(data.curves.step.length, 'step')}
      ${data.wall_seconds != null && ` · ${seconds(data.wall_seconds)}`}
      ${data.stopped && ` · ended: ${data.stopped}`}</p>
    ${data.problem && html`<p class="failure">${data.problem}</p>`}
    <p class="actions"><a class="button" href=${link(at(run, 'rollouts'))}>Rollouts</a>
      ${' '}<a class="button" href=${link(at(run, 'rollouts'), {outcome: 'failed', phase: data.after ? 'after' : 'train'})}>
        Failed ${data.after ? 'after training' : 'in training'}</a></p>
    <${Verdict} effect=${data.effect} />
    <h2>Before and after, on held-out tasks</h2>
    ${data.sets.length ? html`<${Measured} sets=${data.sets} run=${run} />`
      : html`<p class="note">No measurement to show.</p>`}
    <div class="charts"><${Untrained} data=${data} /></div>
    <${Families} families=${data.families} run=${run} />
    <h2>Warnings</h2>
    <${Findings} findings=${data.findings} />
    <h2>Training tasks</h2>
    ${data.config.task_choice === 'adaptive' && html`<p class="note">Tasks whose attempts end differently
      come more often, so that success on them may fall while the model learns.</p>`}
    <div class="filters">
      <label>Lines <select value=${by} onChange=${(event) => setBy(event.target.value)}>
        <option value="">of all tasks</option><option value="family">by family</option>
        <option value="level">by level</option><option value="roles">by role</option>
      </select></label>
      <label><input type="checkbox" checked=${isSmooth}
        onChange=${(event) => setSmooth(event.target.checked)} /> mean of ten steps</label>
    </div>
    <div class="charts">${by
      ? html`<${Grouped} run=${run} by=${by} isSmooth=${isSmooth} turn=${turn} />`
      : html`<${Curves} curves=${data.curves} isSmooth=${isSmooth} />`}</div>
    <h2>Which tool was called</h2>
    <div class="filters"><label>Rollouts <select value=${phase}
      onChange=${(event) => setPhase(event.target.value)}>
      <option value="before">before training</option><option value="after">after training</option>
      <option value="validation">of validation</option></select></label></div>
    <${Confusion} run=${run} phase=${phase} />
    <${Team} run=${run} turn=${turn} />
    <h2>Where every model call went</h2>
    <${Ledger} ledger=${data.ledger} />
    <details><summary>Settings</summary><dl class="settings">
      ${Object.entries(data.config).map(([name, value]) => html`<div><dt>${name}</dt>
        <dd><code>${JSON.stringify(value)}</code></dd></div>`)}</dl></details>`;
}

/** Who spoke after whom in the whole run, or for one purpose. */
function Team({run, turn}) {
  const [phase, setPhase] = useState('');
  const query = phase ? {phase} : {};
  const {data} = useApi(`${runPath(run)}/graph`, query, [run, phase, turn]);
  if (!data || (!phase && !data.turns.length)) return null;
  return html`<h2>Who spoke after whom</h2>
    <div class="filters"><label>Rollouts <select id="team-phase" value=${phase}
      onChange=${(event) => setPhase(event.target.value)}>
      <option value="">all</option><option value="before">before training</option>
      <option value="train">of training</option><option value="after">after training</option>
    </select></label></div>
    <${Graph} graph=${data} name="run" caption=${`Sums over ${plural(data.rollouts, 'scored rollout')}`} />`;
}

/** Held-out tasks before and after, and validation. After is at the step of the saved
    weights; at the end if they are a warm start's, since 0 is before. */
function Untrained({data}) {
  const {x, lines} = useMemo(() => {
    const {validations: found, before, after} = data;
    const held = data.sets[0]?.before ? [[0, before ?? data.sets[0].before],
      ...(after ? [[data.weights_step || found.at(-1)?.step || 1, after]] : [])] : [];
    const line = (name, points) => ({name, x: points.map(([step]) => step),
      values: points.map(([, one]) => (one?.n ? one.value : null))});
    const measured = (metric) => found.map((one) => [one.step, one[metric]]);
    return joined([line('held-out', held.map(([step, one]) => [step, one.pass_1])),
      line('validation', measured('pass_1')),
      line('tool reliability in validation', measured('tool_reliability'))]
      .filter((one) => one.x.length));
  }, [data]);
  return x.length > 0 && html`<${Chart} title="Success on tasks that are not trained on"
    x=${x} lines=${lines} share=${true} />`;
}

export function ComparePage({query}) {
  const names = (query.runs || '').split(',').filter(Boolean);
  const [found, setFound] = useState({});
  const [isSmooth, setSmooth] = useState(true);
  useEffect(() => {
    for (const name of names) {
      get(runPath(name)).then((data) => setFound((old) => ({...old, [name]: {data}})))
        .catch((error) => setFound((old) => ({...old, [name]: {error}})));
    }
  }, [query.runs]);
  const known = names.filter((name) => found[name]?.data?.curves);
  return html`<h1>${plural(names.length, 'run')} compared</h1>
    ${names.filter((name) => found[name]?.error).map((name) =>
      html`<${Failure} error=${found[name].error} />`)}
    <div class="wide"><table><thead><tr><th></th>${known.map((name) =>
      html`<th><a href=${link(at(name))}>${name}</a></th>`)}</tr></thead>
      <tbody>${METRICS.flatMap(([metric, label]) => ['before', 'after'].map((side) =>
        html`<tr><td>${label} ${side}</td>${known.map((name) =>
          html`<td>${span(found[name].data[side]?.[metric])}</td>`)}</tr>`))}</tbody></table></div>
    <div class="filters"><label><input type="checkbox" checked=${isSmooth}
      onChange=${(event) => setSmooth(event.target.checked)} /> mean of ten steps</label></div>
    <div class="charts">${CHARTS.flatMap(([title, fields, share]) => fields.map((field) => {
      const {x, lines} = joined(known.map((name) => {
        const {curves} = found[name].data;
        return {name, x: curves.step, values: drawn(curves[field], isSmooth)};
      }));
      const label = fields.length > 1 ? field.replaceAll('_', ' ') : title;
      return html`<${Chart} title=${label} x=${x} lines=${lines} share=${share} key=${field} />`;
    }))}</div>`;
}
