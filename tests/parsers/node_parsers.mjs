// Prints what Node parsers read in a stream of bytes, for the differential test of rules. Frames: see python_parsers.py.

import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const peers = createRequire(pathToFileURL(process.env.SCRUBJAY_PEERS + '/package.json'));
const { ReadBuffer } = await import(pathToFileURL(peers.resolve('@modelcontextprotocol/sdk/shared/stdio.js')));

const fact = (value) => {
  if (value === undefined || value === null) return null;
  return typeof value === 'string' ? value : JSON.stringify(value) ?? '?';
};

// The values that a careful parser returns.
function facts(message) {
  if (Array.isArray(message)) return message.flatMap(facts);
  if (typeof message !== 'object' || message === null || !('method' in message)) return [];
  const params = message.params ?? {};
  const args = params.arguments ?? {};
  return [[fact(message.method), fact(params.name), fact(message.id), fact(args.path)]];
}

// A careless parser: objects are merged into others, and any value is used as text.
function careless(message) {
  if (Array.isArray(message)) return message.flatMap(careless);
  if (typeof message !== 'object' || message === null) return [];
  const merged = Object.assign({}, message);
  if (merged.method === undefined) return [];
  const params = Object.assign({}, merged.params);
  const args = Object.assign({}, typeof params.arguments === 'string' ? attempt(() => JSON.parse(params.arguments)) : params.arguments);
  const text = (value) => (value === undefined || value === null ? null : attempt(() => String(value)) ?? '?');
  return [[text(merged.method), text(params.name), fact(merged.id), text(args.path)]];
}

function attempt(read) {
  try {
    return read();
  } catch {
    return undefined;
  }
}

const parsed = (lines, read) => lines.flatMap((line) => attempt(() => read(JSON.parse(line))) ?? []);

function sdk(stream) {
  const buffer = new ReadBuffer();
  buffer.append(Buffer.from(stream));
  const read = [];
  for (;;) {
    try {
      const message = buffer.readMessage();
      if (message === null) return read;
      read.push(...facts(message));
    } catch {
      // The SDK reports it, and continues to read.
    }
  }
}

function reading(stream) {
  const text = stream.toString('utf8');
  // Lines as node:readline splits them.
  const lines = text.split(/\r\n|\n|\r|\u2028|\u2029/);
  return [
    ['node sdk', sdk(stream)],
    ['node readline', parsed(lines, facts)],
    ['node careless', parsed(text.split('\n'), careless)],
    ['node without bom', parsed(new TextDecoder().decode(stream).split(/\r?\n/), facts)],
  ];
}

function answer(frame) {
  const out = [];
  for (let at = 0; at < frame.length; ) {
    const length = frame.readUInt32BE(at);
    const told = Buffer.from(JSON.stringify(reading(frame.subarray(at + 4, at + 4 + length))));
    const head = Buffer.alloc(4);
    head.writeUInt32BE(told.length);
    out.push(head, told);
    at += 4 + length;
  }
  const body = Buffer.concat(out);
  const head = Buffer.alloc(4);
  head.writeUInt32BE(body.length);
  process.stdout.write(Buffer.concat([head, body]));
}

let held = Buffer.alloc(0);
for await (const chunk of process.stdin) {
  held = Buffer.concat([held, chunk]);
  while (held.length >= 4 && held.length >= 4 + held.readUInt32BE(0)) {
    const length = held.readUInt32BE(0);
    answer(held.subarray(4, 4 + length));
    held = held.subarray(4 + length);
  }
}
