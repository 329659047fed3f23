// What the document loads: all views, then the page.

import { register, start } from "/page/main.js";
import { report, risk, waiting, why } from "/page/lists.js";
import { device, node, pod } from "/page/things.js";

register("why", "Why", why);
register("waiting", "Waiting", waiting);
register("risk", "At risk", risk);
register("report", "Report", report);
register("node", "", node);
register("device", "", device);
register("pod", "", pod);
start();
