const { test, describe, it } = require('node:test');
const assert = require('node:assert');
const { total } = require('./cart.js');
test('right', () => assert.equal(total([1, 2]), 3));
test('wrong', () => assert.equal(total([1]), 2, 'sum'));
describe('deep', () => { it('crash', () => total(null)); });
