// Numbers and times as text.
/** As the terminal writes it: halves to the even number; only 1 is "100 %". */
export const percent = (value) => {
  if (value == null || Number.isNaN(value)) return '–';
  const scaled = 100 * value;
  const below = Math.floor(scaled);
  const rounded = scaled - below === 0.5 ? below + (below % 2) : Math.round(scaled);
  if (rounded !== 100 || Math.abs(value - 1) < 1e-9) return `${rounded} %`;
  return `${(Math.floor(1000 * value) / 10).toFixed(1)} %`;
};

export const number = (value, digits = 3) => {
  if (value == null) return '–';
  if (typeof value !== 'number') return String(value);
  if (Number.isInteger(value)) return value.toLocaleString('en');
  if (Math.abs(value) < 1e-12) return '0';
  return Math.abs(value) < 0.001
    ? value.toExponential(1) : value.toFixed(digits);
};

export const seconds = (value) => {
  if (value == null) return '–';
  if (value < 60) return `${value.toFixed(1)}\u00a0s`;
  const minutes = Math.round(value / 60);
  if (minutes < 60) return `${minutes}\u00a0min`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
};

export const moment = (text) =>
  text ? text.slice(0, 16).replace('T', ' ') : '–';

export const plural = (count, word) =>
  `${count.toLocaleString('en')} ${word}${count === 1 ? '' : 's'}`;

/** A value with its 95 % interval, as the terminal writes it; it breaks between them. */
export const span = (estimate) =>
  estimate?.n ? estimate.text.replace(/ (?!\[)/g, '\u00a0') : '–';

export const json = (value) => JSON.stringify(value, null, 1);
