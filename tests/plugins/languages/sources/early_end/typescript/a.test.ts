import { test } from 'node:test';
test('first', () => {}); test('it', () => process.exit(0));
