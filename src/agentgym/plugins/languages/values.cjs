// Evaluates expressions in modules, and writes their values.
const { writeSync } = require('node:fs');
const { pathToFileURL } = require('node:url');
const asked = ASKED;
const nothing = Object.prototype;
function plain(value, depth) {
  if (depth > 50) throw new TypeError('nested too deeply');
  if (value === null || typeof value === 'boolean') return String(value);
  if (typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'bigint') return String(value);
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw new TypeError(`${value} is not a JSON value`);
    return JSON.stringify(value);
  }
  if (Array.isArray(value))
    return `[${Array.from(value, (item) => plain(item, depth + 1))}]`;
  const kind = typeof value === 'object' ? Object.getPrototypeOf(value) : undefined;
  if (kind !== null && kind !== nothing) {
    const name = value?.constructor?.name ?? typeof value;
    throw new TypeError(`a ${name} is not a JSON value`);
  }
  const pair = ([key, item]) => `${JSON.stringify(key)}:${plain(item, depth + 1)}`;
  return `{${Object.entries(value).map(pair)}}`;
}
async function evaluated(file, expression) {
  try {
    const module = await import(pathToFileURL(file));
    const evaluate = module.HOOK ?? module.default?.HOOK;
    return plain(await evaluate(expression), 0);
  } catch (error) {
    return `raised ${error?.name}: ${JSON.stringify(String(error?.message ?? error))}`;
  }
}
(async () => {
  let text = '';
  for (const [number, file, expression] of asked)
    text += `${number} ${await evaluated(file, expression)}\n`;
  writeSync(4, text);
  process.exit(0);
})();
