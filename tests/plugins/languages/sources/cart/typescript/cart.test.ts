import { test, describe, it } from 'node:test';
import assert from 'node:assert';
import { total } from './cart.ts';
test('right', () => assert.equal(total([1, 2]), 3));
test('wrong', () => assert.equal(total([1]), 2, 'sum'));
describe('deep', () => { it('crash', () => { throw Error('no'); }); });
