import { readFileSync } from 'node:fs';
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
const source = /\.m?ts$/;
export async function resolve(specifier, context, next) {
  if (!/^[./]/.test(specifier) || !source.test(context.parentURL ?? ''))
    return next(specifier, context);
  const stem = specifier.replace(/\.(m?)[jt]s$/, '');
  for (const name of [stem + '.ts', stem + '.mts', stem + '/index.ts', specifier]) {
    try { return await next(name, context); } catch (error) {
      if (error?.code !== 'ERR_MODULE_NOT_FOUND') throw error;
    }
  }
  return next(specifier, context);
}
export async function load(url, context, next) {
  if (!source.test(url)) return next(url, context);
  const file = relative(process.cwd(), fileURLToPath(url)).replace(/ts$/, 'js');
  const compiled = `${process.env.AGENTGYM_COMPILED}/${file}`;
  return { format: 'module', source: readFileSync(compiled), shortCircuit: true };
}
