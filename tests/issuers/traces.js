// traces.js FILE...: bodies of POST /v1/traces (OTLP/HTTP in JSON), each read by OpenTelemetry's own protocol code, which
// its JavaScript exporters use. Prints one JSON object a file: {file, wrong: null or what, request: what that code has read}.
//
// That code ignores what it does not know and converts what is of another type. So what it has read is written again in
// the protocol's JSON and compared with the body: a member that was lost or changed is wrong.
'use strict';
const fs = require('node:fs');
const { opentelemetry } = require('@opentelemetry/otlp-transformer/build/src/generated/root');

const Request = opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest;
const IDS = new Set(['traceId', 'spanId', 'parentSpanId']);
const isObject = (value) => value !== null && typeof value === 'object';

// Ids are hex in OTLP's JSON and bytes in protobuf: each is given as what Buffer.from makes of it.
function withBytes(value) {
  if (!isObject(value)) return value;
  if (Array.isArray(value)) return value.map(withBytes);
  return Object.fromEntries(Object.entries(value).map(([name, member]) => {
    if (!IDS.has(name)) return [name, withBytes(member)];
    if (typeof member !== 'string' || !/^([0-9a-f]{2})*$/i.test(member)) throw new Error(name + ' is not hex');
    return [name, Buffer.from(member, 'hex')];
  }));
}

function withHex(value) {
  if (Buffer.isBuffer(value) || value instanceof Uint8Array) return Buffer.from(value).toString('hex');
  if (!isObject(value)) return value;
  if (Array.isArray(value)) return value.map(withHex);
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, withHex(member)]));
}

// Where the two differ, as a path; null = nowhere. An empty array is as good as none, an id may have letters of either
// case.
function difference(given, read, path) {
  if (Array.isArray(given) && given.length === 0 && read === undefined) return null;
  if (!isObject(given) || !isObject(read) || Array.isArray(given) !== Array.isArray(read)) {
    const isSame = given === read || (IDS.has(path.split('.').pop()) && String(given).toLowerCase() === read);
    return isSame ? null : `${path} is ${JSON.stringify(given)} and was read as ${JSON.stringify(read)}`;
  }
  for (const name of new Set([...Object.keys(given), ...Object.keys(read)])) {
    const found = difference(given[name], read[name], path ? `${path}.${name}` : name);
    if (found) return found;
  }
  return null;
}

function check(text) {
  try {
    const given = JSON.parse(text);
    if (!isObject(given) || Array.isArray(given)) return { wrong: 'the body is not an object' };
    const read = Request.decode(Request.encode(Request.fromObject(withBytes(given))).finish());
    const request = withHex(Request.toObject(read, { longs: String, enums: Number, bytes: Buffer }));
    return { wrong: difference(given, request, ''), request };
  } catch (error) {
    return { wrong: error.message };
  }
}

for (const file of process.argv.slice(2)) {
  console.log(JSON.stringify({ file, ...check(fs.readFileSync(file, 'utf8')) }));
}
