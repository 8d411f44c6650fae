// Numbers and times as text.
export const percent = (value) =>
  value == null || Number.isNaN(value) ? '–' : `${(100 * value).toFixed(0)} %`;

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
  if (value < 60) return `${value.toFixed(1)} s`;
  const minutes = Math.round(value / 60);
  if (minutes < 60) return `${minutes} min`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
};

export const moment = (text) =>
  text ? text.slice(0, 16).replace('T', ' ') : '–';

export const plural = (count, word) =>
  `${count.toLocaleString('en')} ${word}${count === 1 ? '' : 's'}`;

/** A value with its 95 % interval. */
export const span = (estimate) =>
  estimate == null || !estimate.n ? '–'
    : `${percent(estimate.value)} (${percent(estimate.low)}–${percent(estimate.high)})`;

export const json = (value) => JSON.stringify(value, null, 1);
