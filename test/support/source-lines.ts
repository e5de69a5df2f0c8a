/** Loaded before each test file: stacks name the lines of the sources, and no test waits for the maps of all its modules. */
import { nameSourceLines } from '../../shared/base/stack-lines.js';

nameSourceLines();
