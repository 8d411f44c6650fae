import { hi } from './lib/hi';
hi(process.argv[2]);