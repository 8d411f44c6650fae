const fs = require('node:fs'), { spawn, spawnSync } = require('node:child_process');
const [what, marker] = process.argv.slice(2);
const held = [];
if (what === 'loop') { console.log('begun'); while (true); }
if (what === 'memory') while (true) held.push(Buffer.alloc(16 << 20, 1));
if (what === 'file') {
  const file = fs.openSync('big', 'w');
  while (true) fs.writeSync(file, Buffer.alloc(1 << 20));
}
if (what === 'output') while (true) fs.writeSync(1, 'x'.repeat(5000));
if (what === 'daemon') {
  try {
    const child = spawn('sleep', [marker], { detached: true, stdio: 'ignore' });
    child.on('error', (error) => console.log('refused', error.code));
    child.unref();
  } catch (error) { // EPERM is thrown at once
    console.log('refused', error.code);
  }
}
if (what === 'processes') {
  let count = 0, tried = 0;
  for (; tried < 400; tried++) {
    const child = spawn('sleep', ['30'], { stdio: 'ignore' });
    child.on('error', () => {});
    count += child.pid !== undefined;
    if (child.pid === undefined) break;
  }
  fs.writeSync(1, String(count));
  process.exit(0);
}
