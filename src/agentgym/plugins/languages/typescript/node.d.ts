declare module 'node:*';
declare module 'assert';
declare module 'fs';
declare const process: any, console: any, Buffer: any, performance: any;
declare function setTimeout(call: (...given: any[]) => void, ms?: number): any;
declare function clearTimeout(timer: any): void;
declare function structuredClone<T>(value: T): T;
