// One rollout: the first wrong call first, then every message, call and result.
import {html, useState} from './dom.js';
import {runPath} from './api.js';
import {json, number, percent, plural, seconds} from './format.js';
import {Graph} from './graph.js';
import {at, Copy, Failure, go, link, Loading, Outcome, plain, Text, useApi, useChanges, useKeys} from './parts.js';

const written = (value) => (typeof value === 'string' ? value : json(value));

function Arguments({value, other}) {
  if (value == null) return html`<p class="note">No readable arguments.</p>`;
  const names = Object.keys(value);
  if (!names.length) return html`<p class="note">No arguments.</p>`;
  return html`<dl class="arguments">${names.map((name) => {
    const differs = other && json(other[name]) !== json(value[name]);
    return html`<div class=${differs ? 'differs' : ''}><dt>${plain(name)}</dt>
      <dd><${Text} text=${written(value[name])} label=${`argument ${name}`} /></dd></div>`;
  })}</dl>`;
}

function FirstWrong({page, calls}) {
  const {first_wrong: first, needed, problem} = page.judgement;
  if (page.outcome === 'unfinished') return html`<p class="note">This rollout has not ended.</p>`;
  if (!first) {
    return html`<p class="note">${problem || (page.outcome === 'succeeded'
      ? 'No call was wrong.' : 'No call was wrong, and all needed ones were made.')}</p>`;
  }
  const call = first.call == null ? null : calls[first.call];
  const wanted = first.needed == null ? null : needed?.[first.needed];
  return html`<section class="first" id="first-wrong" aria-label="First wrong call">
    <h2>First wrong call${first.call != null && ` (number ${first.call + 1} of ${calls.length})`}</h2>
    <p>${first.words} ${call && html`<a href="#" onClick=${(event) =>
      show(event, `call-${first.call}`)}>Show it among the steps</a>`}</p>
    <div class="pair">
      <div class="made"><h3>Called</h3>
        ${call ? html`<p><code>${plain(call.name)}</code></p>
          <${Arguments} value=${call.arguments} other=${wanted?.tool === call.name ? wanted.arguments : null} />
          <h4>Result</h4><${Text} text=${call.result} label="result" wrong=${call.outcome !== 'ok'} />`
        : html`<p class="note">Nothing.</p>`}</div>
      <div class="needed"><h3>Needed</h3>
        ${wanted ? html`<p><code>${plain(wanted.tool)}</code></p>
          <${Arguments} value=${wanted.arguments} other=${call?.name === wanted.tool ? call.arguments : null} />
          ${wanted.by_outcome.length > 0 && html`<p class="note">Judged by the outcome:
            ${wanted.by_outcome.join(', ')}.</p>`}
          ${wanted.others.length > 0 && html`<h4>As good</h4>
            ${wanted.others.map((other) => html`<${Arguments} value=${other} />`)}`}
          ${wanted.instead.length > 0 && html`<h4>Or instead</h4>
            ${wanted.instead.map((other) => html`<p><code>${plain(other.tool)}</code></p>
              <${Arguments} value=${other.arguments} />`)}`}`
        : html`<p class="note">${problem || 'No further call was needed.'}</p>`}</div>
    </div></section>`;
}

function Message({message}) {
  const {role, content} = message;
  const text = typeof content === 'string' ? content : json(content);
  return html`<article class=${`step message ${role}`}><h3>${role}</h3>
    <${Text} text=${text} label=${`${role} message`} /></article>`;
}

/** Sampled tokens: coloured by advantage where they were trained. */
function Tokens({call, index}) {
  if (!call) return null;
  const {advantage, bucket, reason} = call;
  const kind = bucket === 'trained' ? (advantage < 0 ? 'bad' : 'good') : 'idle';
  const strength = Math.min(4, Math.max(1, Math.ceil(2 * Math.abs(advantage || 0))));
  const said = bucket === 'trained'
    ? `Trained with the advantage ${number(advantage)}; other tokens were masked: not part of a call.`
    : bucket ? `${bucket}: ${reason}` : 'Not trained on.';
  return html`<div class="tokens"><p class="note">${said}</p>
    <p dir="ltr">${call.texts.map((text, place) => {
      const logprob = call.logprobs[place];
      const trained = call.trained[place];
      const gap = call.gaps[place];
      const title = [`token ${place + 1}`,
        logprob == null ? '' : `log-probability when sampled ${logprob.toFixed(3)} (${percent(Math.exp(logprob))})`,
        gap == null ? '' : `the learner gave it ${(logprob + gap).toFixed(3)}, a gap of ${gap.toFixed(3)} nats`,
        trained ? `advantage ${number(advantage)}` : (reason || 'masked')].filter(Boolean).join('; ');
      return html`<span title=${title} class=${trained ? `token ${kind} s${strength}` : 'token'}>${plain(text) || '∅'}</span>`;
    })}</p></div>`;
}

function Steps({page, tokens}) {
  let call = -1;
  let answer = -1;
  const isTeam = Object.keys(page.graph.roles).length > 1;
  return page.steps.map((step) => {
    if (step.type === 'model_call') {
      answer += 1;
      const own = tokens?.calls[answer];
      return html`${step.messages.map((message) => html`<${Message} message=${message} />`)}
        <article class="step answer" id=${`answer-${answer}`}><h3>model${isTeam && html` as <b>${plain(step.agent)}</b>`}
          ${' '}<small>${[step.response_tokens != null && plural(step.response_tokens, 'token'),
            step.finish_reason === 'length' && 'cut at its most tokens',
            `weights of update ${step.model_version}`,
            step.latency_ms > 0 && `${step.latency_ms.toFixed(0)} ms`].filter(Boolean).join(' · ')}</small></h3>
        ${step.content && html`<${Text} text=${step.content} label="answer" />`}
        ${step.tool_calls.map((asked) => html`<p class="asked">asks for ${' '}
          <code>${plain(asked.name)}</code> <code>${plain(asked.arguments)}</code></p>`)}
        <${Tokens} call=${own} index=${answer} /></article>`;
    }
    call += 1;
    const judged = page.judgement.classes[call];
    const wrong = step.outcome !== 'ok';
    const isFirst = page.judgement.first_wrong?.call === call;
    return html`<article id=${`call-${call}`} class=${`step call ${wrong ? 'error' : ''} ${isFirst ? 'first-wrong' : ''}`}>
      <h3>${call + 1}. <code>${plain(step.name)}</code> <span class=${`outcome ${step.outcome}`}>${step.outcome.replaceAll('_', ' ')}</span>
        ${' '}<small>${judged?.words}</small></h3>
      <${Arguments} value=${step.arguments} />
      <${Text} text=${step.result} label="result" wrong=${wrong} /></article>`;
  });
}

function Related({rows, run, id, title}) {
  const others = rows.filter((row) => row.rollout_id !== id);
  if (!others.length) return null;
  return html`<h2>${title}</h2><div class="wide"><table>
    <thead><tr><th>rollout</th><th>for</th><th class="count">step</th><th>outcome</th>
      <th class="count">reward</th><th class="count">right arguments</th></tr></thead>
    <tbody>${others.map((row) => html`<tr>
      <td><a class="row" href=${link(at(run, 'rollout', row.rollout_id))}>${row.rollout_id}</a></td>
      <td>${row.phase}</td><td class="count">${row.step ?? '–'}</td>
      <td><${Outcome} value=${row.outcome} /> <small>${row.reason}</small></td>
      <td class="count">${number(row.reward, 2)}</td>
      <td class="count">${percent(row.right_arguments)}</td></tr>`)}</tbody></table></div>`;
}

/** Who of a team spoke: in order, as a graph, and over all attempts at the task. */
function Team({page}) {
  if (Object.keys(page.graph.roles).length < 2) return null;
  const order = page.steps.filter((step) => step.type === 'model_call');
  return html`<h2>Who spoke after whom</h2>
    <ol class="order" aria-label="Roles in the order they spoke">${order.map((step, place) => html`<li>
      <a href="#" onClick=${(event) => show(event, `answer-${place}`)}>${plain(step.agent)}</a></li>`)}</ol>
    <div class="graphs"><${Graph} graph=${page.graph} caption="In this rollout" name="own" />
      ${page.team.rollouts > 1 && html`<${Graph} graph=${page.team} name="task"
        caption=${`Sums over ${plural(page.team.rollouts, 'scored rollout')} of this task`} />`}</div>`;
}

function show(event, id) {
  event.preventDefault();
  document.getElementById(id)?.scrollIntoView({block: 'center'});
}

/** The state at the end, as far as the environment has reported it. */
function EndState({page}) {
  const files = Object.entries(page.changed_files);
  const hasState = Object.keys(page.end_state).length > 0;
  if (!files.length && !hasState) {
    return html`<p class="note">The state at the end was not recorded: nothing was changed,
      or the scenario does not report it.</p>`;
  }
  return html`${hasState && html`<${Text} text=${json(page.end_state)} label="state at the end" />`}
    ${files.map(([name, text]) => html`<h4>${plain(name)}${text == null ? ' (removed)' : ''}</h4>
      ${text != null && html`<${Text} text=${text} label=${`file ${name}`} />`}`)}`;
}

function Reward({page}) {
  const parts = Object.entries(page.reward_parts).filter(([, value]) => value);
  return html`<table><caption>Reward</caption>
    <tbody>${parts.map(([name, value]) => html`<tr><td>${plain(name)}</td>
      <td class="count">${number(value)}</td></tr>`)}
      <tr><th>all</th><td class="count">${number(page.reward)}</td></tr></tbody></table>`;
}

export function RolloutPage({run, id}) {
  const [colours, setColours] = useState(false);
  const path = `${runPath(run)}/rollouts/${encodeURIComponent(id)}`;
  const {data: page, error, reload} = useApi(path, {}, [run, id]);
  useChanges(`${runPath(run)}/`, 'rollouts', {data: page, error}, () => !page?.has_ended && reload());
  const tokens = useApi(colours ? `${path}/tokens` : null, {}, [run, id, colours]);
  const beside = page ? page.siblings.map((row) => row.rollout_id) : [];
  const move = (by) => {
    const next = beside[beside.indexOf(id) + by];
    if (next) go(at(run, 'rollout', next));
  };
  useKeys({
    n: () => move(1),
    p: () => move(-1),
    t: () => setColours(!colours),
    f: () => page?.next_failed && go(at(run, 'rollout', page.next_failed)),
  });
  if (error) return html`<${Failure} error=${error} />`;
  if (!page) return html`<${Loading} />`;
  const calls = page.steps.filter((step) => step.type === 'tool_call');
  const before = page.same_task.filter((row) => row.phase === 'before');
  const after = page.same_task.filter((row) => row.phase === 'after');
  const rest = page.same_task.filter((row) => !['before', 'after'].includes(row.phase)
    && !beside.includes(row.rollout_id));
  return html`
    <h1>${id}</h1>
    <p><${Outcome} value=${page.outcome} />
      ${' '}${page.reason && plain(`${page.reason.kind}${page.reason.detail ? `: ${page.reason.detail}` : ''}`)}
      ${' '}· ${page.task.family}, level ${page.task.level}, ${page.task.split}
      ${' '}· step ${page.step ?? '–'} · ${seconds(page.duration_s)}</p>
    <p class="actions">
      <${Copy} text=${JSON.stringify(page.task_line)}>Copy as a line of a tasks file<//>
      ${' '}<${Copy} text=${page.replay}>Copy the command that replays it<//>
      ${' '}<${Copy} text=${location.href}>Copy a link<//>
      ${' '}<button aria-pressed=${colours} onClick=${() => setColours(!colours)}>Tokens</button>
      ${page.next_failed && html` <a class="button" href=${link(at(run, 'rollout', page.next_failed))}>Next failed</a>`}</p>
    <details class="note"><summary>How to replay it with another model</summary>
      <p>In the folder that the run was started from, with the model's name
        for <code>MODEL</code>:</p><pre tabindex="0" id="replay">${page.replay}</pre></details>
    <h2>Task</h2>
    <${Text} text=${page.task.instruction} label="instruction" />
    <${FirstWrong} page=${page} calls=${calls} />
    <div class="shares"><${Reward} page=${page} />
      <table><caption>Choices</caption><tbody>
        <tr><td>right tool</td><td class="count">${percent(page.right_tool)}</td></tr>
        <tr><td>right arguments</td><td class="count">${percent(page.right_arguments)}</td></tr></tbody></table></div>
    <${Team} page=${page} />
    <h2>Steps</h2>
    ${colours && tokens.error && html`<${Failure} error=${tokens.error} />`}
    ${colours && tokens.data && html`<p class="note">${tokens.data.problem} ${tokens.data.credit}</p>`}
    <${Steps} page=${page} tokens=${colours ? tokens.data : null} />
    ${page.judgement.needed && html`<details><summary>All ${plural(page.judgement.needed.length, 'needed call')}</summary>
      <ol>${page.judgement.needed.map((need) => html`<li><code>${plain(need.tool)}</code>
        <${Arguments} value=${need.arguments} /></li>`)}</ol></details>`}
    <h2>State at the end</h2>
    <${EndState} page=${page} />
    <details><summary>State at the start, and the goal</summary>
      <${Text} text=${json(page.task.initial_state)} label="state" />
      <${Text} text=${json(page.task.goal)} label="goal" /></details>
    <${Related} rows=${page.siblings} run=${run} id=${id} title="Other attempts at this task at this step" />
    <${Related} rows=${before.length && after.length ? [...before, ...after] : []} run=${run} id=${id}
      title="The same task before and after training" />
    <${Related} rows=${rest} run=${run} id=${id} title="The same task at other steps" />`;
}
