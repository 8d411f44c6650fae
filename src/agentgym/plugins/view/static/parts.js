// Parts that several pages share.
import {html, useEffect, useRef, useState} from './dom.js';
import {get, watch} from './api.js';

const SHORT = 4000;

/** Load JSON; again whenever `keys` change or `reload()` is called. */
export function useApi(path, query, keys) {
  const [state, setState] = useState({});
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (path == null) return undefined;
    const stop = new AbortController();
    get(path, query, stop.signal)
      .then((data) => {
        setState({data});
        if (data.is_loading) setTimeout(() => setTurn((now) => now + 1), 200);
      })
      .catch((error) => {
        if (error.name !== 'AbortError') setState((old) => ({...old, error}));
      });
    return () => stop.abort();
  }, [...keys, turn]);
  return {...state, reload: () => setTurn((now) => now + 1)};
}

/** Call `changed` on new `what` of a path, from the first answer that was shown on. */
export function useChanges(path, what, {data, error}, changed) {
  const isShown = Boolean(data || error);
  const now = useRef(changed);
  now.current = changed;
  useEffect(() => (isShown
    ? watch(path, what, data?.cursor ?? {}, () => now.current()) : undefined), [path, isShown]);
}

export const Failure = ({error}) =>
  html`<p class="failure" role="alert">${error.message}</p>`;

export const Loading = () => html`<p class="note" role="status">Loading…</p>`;

/** Text that stays text; a long one is shown in part until it is asked for. */
export function Text({text, label, wrong}) {
  const [whole, setWhole] = useState(false);
  const full = text == null ? '' : String(text);
  const isLong = full.length > SHORT;
  const shown = isLong && !whole ? full.slice(0, SHORT) : full;
  return html`<div class=${wrong ? 'text wrong' : 'text'}>
    <pre tabindex="0" dir="auto" role="region" aria-label=${label || 'text'}>${plain(shown)}</pre>
    ${isLong && html`<button onClick=${() => setWhole(!whole)}>
      ${whole ? 'Show less' : `Show all ${full.length.toLocaleString('en')} characters`}
    </button>`}
  </div>`;
}

/** Characters that would hide or reorder others are shown by their number. */
export const plain = (text) =>
  text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g,
    (found) => `⟨${found.codePointAt(0).toString(16).padStart(4, '0')}⟩`);

/** Copy text, and say so. */
export function Copy({text, children}) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button onClick=${copy} title=${text}>
    ${done ? 'Copied' : children}</button>`;
}

export const Outcome = ({value}) =>
  html`<span class=${`outcome ${value}`}>${value}</span>`;

/** Listen for keys, except where text is typed. */
export function useKeys(actions) {
  const now = useRef(actions);
  now.current = actions;
  useEffect(() => {
    const listen = (event) => {
      const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (typing && event.key !== 'Escape') return;
      const action = now.current[event.key];
      if (action) {
        event.preventDefault();
        action();
      }
    };
    addEventListener('keydown', listen);
    return () => removeEventListener('keydown', listen);
  }, []);
}

/** Move the focus between rows that can be opened. */
export function moveRow(by) {
  const rows = [...document.querySelectorAll('a.row')];
  const at = rows.indexOf(document.activeElement);
  const next = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))];
  next?.focus();
}

export function go(path, query = {}) {
  const known = Object.entries(query).filter(([, value]) => value !== '' && value != null);
  const text = new URLSearchParams(known).toString();
  location.hash = `#${path}${text ? `?${text}` : ''}`;
}

export const link = (path, query = {}) => {
  const text = new URLSearchParams(query).toString();
  return `#${path}${text ? `?${text}` : ''}`;
};

export const at = (run, ...more) =>
  ['/run', encodeURIComponent(run), ...more.map(encodeURIComponent)].join('/');
