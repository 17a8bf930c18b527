import type { KeyRange, LeaseId } from "../coordinator/index.ts";
import { readKeyRange, readLeaseIds } from "./decode-operation.ts";
import type { ProtoReader } from "./reader.ts";
import { MalformedError } from "./reader.ts";

/** A request of a frame; its operation is still bytes of the frame, from `start` to `end`. */
export interface WireRequest {
  readonly id: number;
  readonly clientId: number;
  readonly sequence: number;
  readonly acknowledgedBelow: number;
  readonly deadlineMs: number;
  readonly token: string;
  readonly start: number;
  readonly end: number;
}

export interface WireRenewal {
  readonly id: number;
  readonly leaseIds: readonly LeaseId[];
}

export interface WireWatchCreate {
  readonly watchId: number;
  readonly range: KeyRange;
  readonly startRevision: number;
  readonly returnPrevious: boolean;
  readonly omitPuts: boolean;
  readonly omitDeletes: boolean;
}

export interface WireFrame {
  readonly bytes: Buffer;
  readonly namespace: string;
  readonly epoch: number;
  readonly requests: readonly WireRequest[];
  readonly renewal: WireRenewal | undefined;
  readonly watchCreates: readonly WireWatchCreate[];
  readonly watchCancels: readonly number[];
  readonly watchProgress: readonly number[];
}

/** What a unary ExecuteRequest holds, besides its one request. */
export interface WireExecute {
  readonly namespace: string;
  readonly epoch: number;
  readonly request: WireRequest;
}

/** Bounds that are checked while a frame is decoded, before its entries cost memory. */
export interface FrameBounds {
  readonly requestsPerFrameMax: number;
  readonly renewalsPerFrameMax: number;
  /** Watch creations, cancellations and progress requests, each. */
  readonly watchEntriesPerFrameMax: number;
}

const EMPTY: Buffer = Buffer.alloc(0);
const NONE: readonly never[] = [];

function decodeRequest(r: ProtoReader): WireRequest {
  const outer = r.enter();
  let id = 0;
  let clientId = 0;
  let sequence = 0;
  let acknowledgedBelow = 0;
  let deadlineMs = 0;
  let start = 0;
  let end = 0;
  while (r.position < r.limit) {
    const tag = r.uint32();
    switch (tag) {
      case 0x08:
        id = r.uint53();
        break;
      case 0x10:
        clientId = r.uint53();
        break;
      case 0x18:
        sequence = r.uint53();
        break;
      case 0x20:
        acknowledgedBelow = r.uint53();
        break;
      case 0x28:
        deadlineMs = r.uint32();
        break;
      case 0x32: {
        const limit = r.enter();
        start = r.position;
        end = r.limit;
        r.leave(limit);
        break;
      }
      default:
        r.skip(tag);
    }
  }
  r.leave(outer);
  return { id, clientId, sequence, acknowledgedBelow, deadlineMs, token: "", start, end };
}

function decodeRenew(r: ProtoReader, most: number): WireRenewal {
  const outer = r.enter();
  let id = 0;
  const leaseIds: LeaseId[] = [];
  while (r.position < r.limit) {
    const tag = r.uint32();
    if (tag === 0x08) id = r.uint53();
    else if (tag === 0x12 || tag === 0x10) readLeaseIds(r, tag, leaseIds, most);
    else r.skip(tag);
  }
  r.leave(outer);
  return { id, leaseIds };
}

function decodeWatchCreate(r: ProtoReader): WireWatchCreate {
  const outer = r.enter();
  let watchId = 0;
  let range: KeyRange = { key: EMPTY };
  let startRevision = 0;
  let returnPrevious = false;
  let omitPuts = false;
  let omitDeletes = false;
  while (r.position < r.limit) {
    const tag = r.uint32();
    switch (tag) {
      case 0x08:
        watchId = r.uint53();
        break;
      case 0x12:
        range = readKeyRange(r);
        break;
      case 0x18:
        startRevision = r.uint53();
        break;
      case 0x20:
        returnPrevious = r.bool();
        break;
      case 0x28:
        omitPuts = r.bool();
        break;
      case 0x30:
        omitDeletes = r.bool();
        break;
      default:
        r.skip(tag);
    }
  }
  r.leave(outer);
  return { watchId, range, startRevision, returnPrevious, omitPuts, omitDeletes };
}

/** Appends watch ids, packed or one by one. */
function readIds(r: ProtoReader, tag: number, into: number[], most: number): void {
  const packed = (tag & 7) === 2;
  const outer = packed ? r.enter() : 0;
  do {
    if (packed && r.position >= r.limit) break;
    if (into.length >= most) throw new MalformedError(`more than ${most} watch ids in one list of a frame`);
    into.push(r.uint53());
  } while (packed);
  if (packed) r.leave(outer);
}

/** Decodes `ClientFrame`s, with one reused reader. */
export class FrameDecoder {
  private readonly reader: ProtoReader;
  private readonly bounds: FrameBounds;

  constructor(reader: ProtoReader, bounds: FrameBounds) {
    this.reader = reader;
    this.bounds = bounds;
  }

  /** @throws MalformedError; a frame with too many entries is malformed too. */
  decode(bytes: Buffer): WireFrame {
    const r = this.reader;
    r.reset(bytes, 0, bytes.length);
    const { requestsPerFrameMax, renewalsPerFrameMax, watchEntriesPerFrameMax } = this.bounds;
    let namespace = "";
    let epoch = 0;
    const requests: WireRequest[] = [];
    let renewal: WireRenewal | undefined;
    let watchCreates: WireWatchCreate[] | undefined;
    let watchCancels: number[] | undefined;
    let watchProgress: number[] | undefined;
    while (r.position < r.limit) {
      const tag = r.uint32();
      switch (tag) {
        case 0x0a:
          namespace = r.string();
          break;
        case 0x10:
          epoch = r.uint53();
          break;
        case 0x1a:
          if (requests.length >= requestsPerFrameMax) {
            throw new MalformedError(`more than ${requestsPerFrameMax} requests in one frame`);
          }
          requests.push(decodeRequest(r));
          break;
        case 0x22:
          renewal = decodeRenew(r, renewalsPerFrameMax);
          break;
        case 0x2a:
          watchCreates ??= [];
          if (watchCreates.length >= watchEntriesPerFrameMax) {
            throw new MalformedError(`more than ${watchEntriesPerFrameMax} watches created in one frame`);
          }
          watchCreates.push(decodeWatchCreate(r));
          break;
        case 0x30:
        case 0x32:
          readIds(r, tag, (watchCancels ??= []), watchEntriesPerFrameMax);
          break;
        case 0x38:
        case 0x3a:
          readIds(r, tag, (watchProgress ??= []), watchEntriesPerFrameMax);
          break;
        default:
          r.skip(tag);
      }
    }
    return {
      bytes,
      namespace,
      epoch,
      requests,
      renewal,
      watchCreates: watchCreates ?? NONE,
      watchCancels: watchCancels ?? NONE,
      watchProgress: watchProgress ?? NONE,
    };
  }

  /** Decodes the unary `ExecuteRequest`. @throws MalformedError */
  decodeExecute(bytes: Buffer): WireExecute {
    const r = this.reader;
    r.reset(bytes, 0, bytes.length);
    let namespace = "";
    let epoch = 0;
    const request = {
      id: 0,
      clientId: 0,
      sequence: 0,
      acknowledgedBelow: 0,
      deadlineMs: 0,
      token: "",
      start: 0,
      end: 0,
    };
    while (r.position < r.limit) {
      const tag = r.uint32();
      switch (tag) {
        case 0x0a:
          namespace = r.string();
          break;
        case 0x10:
          epoch = r.uint53();
          break;
        case 0x18:
          request.clientId = r.uint53();
          break;
        case 0x20:
          request.sequence = r.uint53();
          break;
        case 0x28:
          request.acknowledgedBelow = r.uint53();
          break;
        case 0x32:
          request.token = r.string();
          break;
        case 0x38:
          request.deadlineMs = r.uint32();
          break;
        case 0x42: {
          const limit = r.enter();
          request.start = r.position;
          request.end = r.limit;
          r.leave(limit);
          break;
        }
        default:
          r.skip(tag);
      }
    }
    return { namespace, epoch, request };
  }
}
