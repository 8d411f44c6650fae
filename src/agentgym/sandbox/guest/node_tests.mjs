// A reporter for node:test: each outcome as a line of JSON on descriptor 3.
import { writeSync } from 'node:fs';
import { relative } from 'node:path';

const selected = new Set(JSON.parse(process.argv[3]));
const report = (line) => writeSync(3, `${JSON.stringify(line)}\n`);

function describe(error) {
  const cause = error?.cause ?? error;
  const stack = String(cause?.stack ?? '');
  const at = /\(?(?:file:\/\/)?([^\s()]+):(\d+):\d+\)?$/m.exec(stack);
  const place = at ? `${relative(process.cwd(), at[1])}:${at[2]}: ` : '';
  const text = cause?.message ?? cause;
  return `${place}${cause?.name ?? 'Error'}: ${text}`;
}

export default async function* reporter(source) {
  const names = [];
  for await (const { type, data } of source) {
    if (type === 'test:stdout' || type === 'test:stderr') yield data.message;
    if (!data?.file || data.file.endsWith('/node_runner.mjs')) continue;
    if (type === 'test:start') names.splice(data.nesting, Infinity, data.name);
    const ended = type === 'test:pass' || type === 'test:fail';
    if (!ended || data.details?.type === 'suite') continue;
    const path = [...names.slice(0, data.nesting), data.name].join(' > ');
    const test = `${relative(process.cwd(), data.file)}::${path}`;
    if (selected.size && !selected.has(test)) continue;
    const seconds = (data.details?.duration_ms ?? 0) / 1000;
    const line = { test, outcome: 'passed', message: '', seconds };
    if (type === 'test:fail') {
      const error = data.details?.error;
      const asserted = error?.cause?.code === 'ERR_ASSERTION';
      line.outcome = asserted ? 'failed' : 'error';
      line.message = describe(error);
    }
    report(line);
    yield `${line.outcome} ${test}${line.message && `\n  ${line.message}`}\n`;
  }
  report({ running: null });
}
