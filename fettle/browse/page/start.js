// What the document loads: all views, then the page.

import { start } from "/page/main.js";

start();
