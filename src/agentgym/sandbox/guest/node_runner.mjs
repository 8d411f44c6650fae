// Import test files one after the other, so that node:test runs them in this process.
import { writeSync } from 'node:fs';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';

test('the reporter starts', () => {});
for (const file of JSON.parse(process.argv[2])) {
  try {
    await import(pathToFileURL(file));
  } catch (error) {
    const message = `${error?.name}: ${error?.message ?? error}`;
    const line = { test: file, outcome: 'error', message, seconds: 0 };
    writeSync(3, `${JSON.stringify(line)}\n`);
    process.stderr.write(`${error?.stack ?? error}\n`);
    process.exitCode = 1;
  }
}
