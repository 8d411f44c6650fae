// Preact and htm, put together once.
import {h, render} from './vendor/preact.mjs';
import htm from './vendor/htm.mjs';

export {useEffect, useRef, useState, useCallback, useMemo} from './vendor/hooks.mjs';
export {render};
export const html = htm.bind(h);
