/** An apiserver for tests, and the means to make it fail. */
export { FakeApiServer } from "./fake-apiserver.ts";
export type {
  FakeApiServerOptions,
  FakeCall,
  FakeRequest,
  FakeSink,
  Fault,
  StreamFault,
} from "./fake-apiserver.ts";
export { FakeRefusal, FakeStore } from "./fake-store.ts";
export type { FakeKind, LogEntry, WriteOptions } from "./fake-store.ts";
export { serveFake } from "./fake-http.ts";
export type { FakeHttp, FakeHttpOptions } from "./fake-http.ts";
export { fakeTransport } from "./fake-transport.ts";
export { hookedTransport } from "./hooked-transport.ts";
export type { TransportHooks } from "./hooked-transport.ts";
export { ManualRuntime, mulberry32, settle } from "./manual-runtime.ts";
