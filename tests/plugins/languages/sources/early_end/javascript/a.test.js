const { test } = require('node:test');
test('first', () => {}); test('it', () => process.exit(0));
