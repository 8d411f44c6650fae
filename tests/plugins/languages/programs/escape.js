const fs = require('node:fs'), net = require('node:net'), dgram = require('node:dgram');
const [folder] = process.argv.slice(2);
const attempt = (call) => {
  try { console.log('REACHED', call()); } catch (error) { console.log('refused', error.code); }
};
attempt(() => fs.writeFileSync(`${folder}/written`, 'x'));
attempt(() => fs.mkdirSync(`${folder}/made`));
attempt(() => fs.rmSync(`${folder}/victim`));
attempt(() => fs.renameSync(`${folder}/secret`, 'stolen'));
for (const path of ['/usr/x', '/etc/x', '/dev/x', '/root/x'])
  attempt(() => fs.writeFileSync(path, 'x'));
attempt(() => fs.readFileSync(`${folder}/secret`, 'utf8'));
attempt(() => fs.readFileSync('/etc/shadow', 'utf8').length);
const seen = [JSON.stringify(process.env)];
for (const pid of ['1', String(process.ppid), 'self']) {
  try { seen.push(fs.readFileSync(`/proc/${pid}/environ`, 'utf8')); } catch {}
}
console.log(seen.some((text) => text.includes('hunter2')) ? 'REACHED' : 'refused');
const over = (socket, ready) => {
  socket.on('error', (error) => { console.log('refused', error.code); socket.unref?.(); });
  socket.on(ready, () => { console.log('REACHED', ready); socket.close(); });
};
const server = net.createServer();
over(server, 'listening');
server.listen(0);
const socket = dgram.createSocket('udp4');
over(socket, 'listening');
socket.bind(0);
