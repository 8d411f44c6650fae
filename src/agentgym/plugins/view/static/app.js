// The page: its address decides what is shown.
import {html, render, useEffect, useState} from './dom.js';
import {useKeys, go} from './parts.js';
import {RunsPage} from './runs.js';
import {RunPage, ComparePage} from './run.js';
import {RolloutsPage} from './rollouts.js';
import {RolloutPage} from './rollout.js';

function place() {
  const [path, query] = location.hash.slice(1).split('?');
  const parts = path.split('/').filter(Boolean).map(decodeURIComponent);
  return {parts, query: Object.fromEntries(new URLSearchParams(query || ''))};
}

const HELP = [
  ['j, k', 'next or previous row of a table; Enter opens it'],
  ['n, p', 'next or previous rollout of the same task and step'],
  ['f', 'next rollout that failed, for the same purpose'],
  ['t', 'tokens of a rollout'],
  ['/', 'search'],
  ['u', 'one page up'],
  ['?', 'these keys'],
];

function Page({parts, query}) {
  const [kind, run, what, id] = parts;
  if (kind === 'compare') return html`<${ComparePage} query=${query} />`;
  if (kind !== 'run') return html`<${RunsPage} query=${query} />`;
  if (what === 'rollouts') return html`<${RolloutsPage} run=${run} query=${query} />`;
  if (what === 'rollout') return html`<${RolloutPage} run=${run} id=${id} key=${id} />`;
  return html`<${RunPage} run=${run} key=${run} />`;
}

function App() {
  const [now, setNow] = useState(place());
  const [help, setHelp] = useState(false);
  useEffect(() => {
    const changed = () => {
      setNow(place());
      scrollTo(0, 0);
    };
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  const [kind, run, what] = now.parts;
  useEffect(() => {
    document.title = [run, 'AgentGym'].filter(Boolean).join(' · ');
  }, [run]);
  useKeys({
    '?': () => setHelp(!help),
    Escape: () => { setHelp(false); document.activeElement?.blur(); },
    u: () => {
      if (what === 'rollout') go(`/run/${encodeURIComponent(run)}/rollouts`);
      else if (what) go(`/run/${encodeURIComponent(run)}`);
      else go('/');
    },
  });
  return html`
    <header>
      <nav aria-label="Place">
        <a href="#/">Runs</a>
        ${kind === 'run' && html`<span aria-hidden="true">›</span>
          <a href=${`#/run/${encodeURIComponent(run)}`}>${run}</a>`}
        ${what && html`<span aria-hidden="true">›</span>
          <a href=${`#/run/${encodeURIComponent(run)}/rollouts`}>Rollouts</a>`}
      </nav>
      <button onClick=${() => setHelp(!help)} aria-expanded=${help}>Keys</button>
    </header>
    ${help && html`<dl class="help">${HELP.map(([key, does]) =>
      html`<div><dt><kbd>${key}</kbd></dt><dd>${does}</dd></div>`)}</dl>`}
    <main><${Page} ...${now} /></main>`;
}

const root = document.getElementById('app');
root.textContent = '';
render(html`<${App} />`, root);
