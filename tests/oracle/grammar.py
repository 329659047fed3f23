"""What random selectors are made of: literals, and templates with a hole for each part.

`{string}` is a hole for a string; the type after a group of templates is what they give. Rows
follow the function libraries of the environment that selectors are compiled in.
"""

from __future__ import annotations

from tests.oracle import rare_grammar

_LITERALS: dict[str, tuple[str, ...]] = {
    "bool": ("true", "false"),
    "int": (
        *("0", "1", "-1", "2", "3", "7", "42", "9223372036854775807", "-9223372036854775808"),
        *("0xFF", "-0x1f", "10", "100 // said\n"),
    ),
    "uint": ("0u", "1u", "7u", "18446744073709551615u"),
    "double": ("0.0", "1.0", "-1.5", "2.5", "3.0", "1e300", "0.1", ".5", "1e-3", "-0.0", "6.02E23"),
    "string": (
        *('""', '"a"', '"b"', '"A100"', '"abc"', '"a,b,c"', "'x-Y z'", '"1"', '"1.5"', '"true"'),
        *('"  pad "', '"héllo"', '"日本"', '"550.54.15"', '"1Gi"', '"10.0.0.1"', 'r"\\d+"'),
        *("'''it's\n\"so\"'''", '"\\u00e9\\x41\\101\\t\\n"', "r'\\n'", '"😀x"', '"v1.2.3"', '"-5"'),
        *(
            '"2024-02-29T12:30:45Z"',
            '"1h30m"',
            '"::ffff:1.2.3.4"',
            '"dns-label"',
            '"1e3"',
            '"0x10"',
        ),
        *('"%s and %d"', '"a\\nb"', '"10.0.0.0/8"', '"https://a.example:8080/p?q=1"'),
        *('"redis://h1:1,h2:2/0"', '"+05:30"', '"-99:00"', '"1:5"'),
    ),
    "bytes": ('b"abc"', 'b""', 'b"\\xff"', "b'é'", 'rb"\\x"'),
    "duration": (
        *('duration("1h")', 'duration("90s")', 'duration("-1.5s")', 'duration("0")'),
        *('duration("70us")', 'duration("1.000000003s")'),
    ),
    "timestamp": (
        'timestamp("2024-02-29T12:30:45Z")',
        'timestamp("1970-01-01T00:00:00Z")',
        'timestamp("9999-12-31T23:59:59.999999999Z")',
        'timestamp("2023-12-31T23:59:59.5+01:00")',
    ),
    "quantity": tuple(
        f'quantity("{q}")'
        for q in ("1Gi", "40Gi", "1500m", "0", "-2", "1e3", "2", "3k", "0.5", "12E", "1n", "100u")
    ),
    "semver": tuple(
        f'semver("{v}")'
        for v in ("1.2.3", "0.0.1", "1.10.0", "2.0.0-rc.1", "2.0.0-rc.1.x", "2.0.0-2", "1.2.3+b5")
    ),
    "ip": ('ip("10.0.0.1")', 'ip("127.0.0.1")', 'ip("::1")', 'ip("fe80::1")', 'ip("224.0.0.1")'),
    "cidr": ('cidr("10.0.0.0/8")', 'cidr("10.1.2.3/16")', 'cidr("2001:db8::/32")'),
    "url": (
        *('url("https://a.example:8080/p?q=1&q=2")', 'url("/only/path")', 'url("http://[::1]/")'),
        *('url("pci://0000:db:00")', 'url("redis://h1:1,h2:2/0")'),
    ),
    "format": (
        *("format.dns1123Label()", "format.dns1123Subdomain()", "format.dns1035Label()"),
        *("format.qualifiedName()", "format.dns1123LabelPrefix()", "format.labelValue()"),
        *("format.dns1123SubdomainPrefix()", "format.dns1035LabelPrefix()", "format.uri()"),
        *("format.uuid()", "format.byte()", "format.date()", "format.datetime()"),
    ),
    "ints": ("[]", "[1]", "[3, 1, 2]", "[1, 1, 2]", "[7, 42]"),
    "strings": ('["a"]', '["b", "a", "c"]', '["a", "a"]', '["", "x"]', '["A100", "H100"]'),
    "doubles": ("[1.5, 0.5]", "[2.0]"),
    "nested": ("[[1, 2], [3]]", "[[1]]", "[[3, 1], [], [2]]"),
    "map": ('{"a": 1, "b": 2}', '{"a": 1}', '{"x": 3, "a": 2, "c": 1}', "{'A100': 0}"),
    "optint": ("optional.of(1)", "optional.none()", "optional.ofNonZeroValue(0)"),
    "optstring": ('optional.of("a")', 'optional.ofNonZeroValue("")', "optional.of('A100')"),
    "dyn": (
        'device.attributes["gpu.example.com"].model',
        'device.attributes["gpu.example.com"].index',
        'device.attributes["gpu.example.com"]["uuid"]',
        "device.attributes[device.driver].mig",
        "device.attributes[device.driver].driverVersion",
        "device.attributes[device.driver].links",
        "device.attributes[device.driver].tags",
        'device.attributes["example.com"].numa',
        "device.attributes[device.driver].nosuch",
        "device.attributes['nosuch.example.com'].model",
        "device.attributes[device.driver].?nosuch.orValue(1)",
        "device.attributes[device.driver].?model.orValue('none')",
        "dyn(1)",
        'dyn("a")',
        "dyn([1, 2])",
        "null",
    ),
    "type": ("int", "string", "bool", "type(1.5)"),
}

_TEMPLATES: dict[str, tuple[str, ...]] = {
    "bool": (
        # operators and macros
        *("!({bool})", "{bool} && {bool}", "{bool} || {bool}", "{bool} ? {bool} : {bool}"),
        *("{int} == {int}", "{int} != {int}", "{int} < {int}", "{int} >= {int}"),
        *("{string} == {string}", "{string} < {string}", "{double} <= {double}"),
        *("{double} > {int}", "{int} < {double}", "{uint} < {int}", "{int} >= {uint}"),
        *("{bool} == {bool}", "{duration} < {duration}", "{timestamp} <= {timestamp}"),
        *("{bytes} == {bytes}", "{ints} == {ints}", "{strings} != {strings}", "{map} == {map}"),
        *("{int} in {ints}", "{string} in {strings}", "{string} in {map}", "{dyn} in {strings}"),
        *("{dyn} == {string}", "{dyn} == {int}", "{dyn} != {dyn}", "{dyn} > {int}"),
        *("{dyn} < {dyn}", "{string} == {dyn}", "{dyn} == {double}", "{dyn} == {bool}", "{dyn}"),
        *("type({dyn}) == {type}", "type({int}) == {type}", "{quantity} == {quantity}"),
        *("{semver} == {semver}", "{dyn} == {semver}", "{ip} == {ip}", "{url} == {url}"),
        *("{cidr} == {cidr}", "{optint} == {optint}", "{optstring} != {optstring}"),
        *("{ints}.all(x, x > {int})", "{ints}.exists(x, x == {int})"),
        *("{strings}.exists_one(s, s == {string})", "{strings}.all(s, s.size() > {int})"),
        *("{map}.all(k, k != {string})", "{map}.exists(k, k < {string})"),
        *("{dyn}.exists(x, x == {int})", "{dyn}.all(x, x != {string})"),
        # two-variable macros
        *("{ints}.all(i, x, i < x)", "{ints}.exists(i, x, i == x)"),
        "{strings}.existsOne(i, s, s == {string} && i < {int})",
        *("{map}.all(k, v, k != {string} || v > {int})", "{map}.exists(k, v, v == {int})"),
        *("{map}.existsOne(k, v, v > {int})", "{ints}.exists_one(i, x, x == {int})"),
        # strings and regular expressions
        *("{string}.contains({string})", "{string}.startsWith({string})"),
        *("{string}.endsWith({string})", "{string}.matches({pattern})", "bool({string})"),
        # optionals
        *("{optint}.hasValue()", "{optstring}.hasValue()", "has({fields})"),
        *("device.attributes[?{domain}].hasValue()", "{domain} in device.attributes"),
        *(
            "device.attributes[{domain}].?{name}.hasValue()",
            "{name_text} in device.attributes[{domain}]",
        ),
        "device.attributes[{domain}][?{name_text}].orValue({int}) == {dyn}",
        "device.capacity[{domain}].?{amount}.hasValue()",
        "device.allowMultipleAllocations",
        # bindings
        "cel.bind(b, {int}, b == {int} || b < {int})",
        "cel.bind(d, device.attributes[{domain}], d.{name} == {dyn})",
        # quantities, versions
        *("isQuantity({string})", "{quantity}.isGreaterThan({quantity})"),
        *("{quantity}.isLessThan({quantity})", "{quantity}.isInteger()"),
        *("isSemver({string})", "isSemver({string}, {bool})", "{semver}.isGreaterThan({semver})"),
        *("{semver}.isLessThan({semver})", "{dyn}.isGreaterThan({semver})"),
        # addresses, links, formats
        *("isIP({string})", "ip.isCanonical({string})", "{ip}.isLoopback()"),
        *("{ip}.isUnspecified()", "{ip}.isGlobalUnicast()", "{ip}.isLinkLocalUnicast()"),
        *("{ip}.isLinkLocalMulticast()", "isCIDR({string})", "{cidr}.containsIP({ip})"),
        *("{cidr}.containsIP({string})", "{cidr}.containsCIDR({cidr})"),
        *("{cidr}.containsCIDR({string})", "isURL({string})"),
        *("{format}.validate({string}).hasValue()", "format.named({string}).hasValue()"),
        # lists and sets
        *("{ints}.isSorted()", "{strings}.isSorted()", "sets.contains({ints}, {ints})"),
        *("sets.equivalent({strings}, {strings})", "sets.intersects({ints}, {ints})"),
        *("sets.contains({strings}, {strings})", "{dyn}.includes({string})"),
        "{strings}.includes({string})",
        # maps with other keys, and lists of anything
        *("{{1: {string}, 2: {string} }}[{int}] == {string}", "{int} in {{1: true, 3: false }}"),
        *("{{true: {int} }}[{bool}] > {int}", "[dyn({int}), dyn({string})].exists(x, x == {dyn})"),
        *("dyn({ints}) == {dyn}", "dyn({map}).a == {dyn}", "{map}.a < {int}", "has({map}.b)"),
        *(
            "{dyn} in {map}",
            "{dyn} in [{dyn}, {dyn}]",
            "{dyn}.size() > {int}",
            "{dyn}[{int}] == {dyn}",
        ),
        *("{dyn}.find({pattern}) == {string}", "{dyn}.distinct() == {strings}"),
        *("{dyn}.sort() == {ints}", "[{ints}].flatten({dyn}).size() == {int}"),
        *("{dyn}.matches({pattern})", "{dyn}.startsWith({string})", "!{dyn}", "{dyn} && {bool}"),
        *("{dyn} + {dyn} == {dyn}", "-{dyn} < {int}", "{dyn} ? {bool} : {bool}", "{dyn} == null"),
        *(
            "{ints}.exists(x, {strings}.all(y, size(y) > x))",
            "{ints}.map(x, {ints}.filter(y, y > x)).size() > {int}",
        ),
        *(
            "{double} == {double}",
            "{uint} == {uint}",
            "{quantity} != {quantity}",
            "{format} == {format}",
        ),
    ),
    "int": (
        *("{int} + {int}", "{int} - {int}", "{int} * {int}", "{int} / {int}", "{int} % {int}"),
        *("-({int})", "{bool} ? {int} : {int}", "size({string})", "{string}.size()"),
        *("size({ints})", "{strings}.size()", "size({map})", "size({bytes})", "{map}[{string}]"),
        *("int({double})", "int({string})", "int({uint})", "int({timestamp})", "{ints}[{int}]"),
        *("{string}.indexOf({string})", "{string}.lastIndexOf({string})"),
        *("{string}.indexOf({string}, {int})", "{string}.lastIndexOf({string}, {int})"),
        *("{ints}.sum()", "{ints}.min()", "{ints}.max()", "{ints}.indexOf({int})"),
        *("{strings}.lastIndexOf({string})", "{optint}.value()", "{optint}.orValue({int})"),
        *("{quantity}.compareTo({quantity})", "{quantity}.asInteger()", "sign({quantity})"),
        *("{semver}.compareTo({semver})", "{semver}.major()", "{semver}.minor()"),
        *("{semver}.patch()", "{ip}.family()", "{cidr}.prefixLength()"),
        *("{timestamp}.getFullYear()", "{timestamp}.getMonth()", "{timestamp}.getDayOfYear()"),
        *("{timestamp}.getDayOfWeek()", "{timestamp}.getDate()", "{timestamp}.getDayOfMonth()"),
        *(
            "{timestamp}.getHours('+02:00')",
            "{timestamp}.getHours({string})",
            "{timestamp}.getSeconds()",
        ),
        *("{timestamp}.getMinutes()", "{timestamp}.getMilliseconds()"),
        *("{duration}.getHours()", "{duration}.getMinutes()"),
        *("{duration}.getSeconds()", "{duration}.getMilliseconds()", "{ints}.first().value()"),
        *("{ints}.last().orValue({int})", "cel.bind(n, {int}, n + n)", "int({duration})"),
        "{format}.validate({string}).optMap(e, size(e)).orValue(0)",
    ),
    "uint": (
        "uint({int})",
        "uint({string})",
        "uint({double})",
        "{uint} + {uint}",
        "{uint} / {uint}",
    ),
    "double": (
        *("{double} + {double}", "{double} / {double}", "double({int})", "double({string})"),
        *("{quantity}.asApproximateFloat()", "{doubles}.sum()", "-({double})"),
    ),
    "string": (
        *("{string} + {string}", "string({int})", "string({double})", "string({bool})"),
        *("string({duration})", "string({timestamp})", "string({bytes})", "{string}.charAt({int})"),
        *("{string}.lowerAscii()", "{string}.upperAscii()", "{string}.trim()"),
        *("{string}.replace({string}, {string})", "{string}.replace({string}, {string}, {int})"),
        *("{string}.substring({int})", "{string}.substring({int}, {int})", "{strings}.join()"),
        *("{strings}.join({string})", "strings.quote({string})", "{string}.find({pattern})"),
        *("{template}.format([{int}, {string}])", "{template}.format([{dyn}, {double}])"),
        *("{template}.format([{strings}, {map}])", "{template}.format([{quantity}, {bool}])"),
        *("{optstring}.orValue({string})", "{optstring}.value()", "{strings}[{int}]"),
        *("{url}.getScheme()", "{url}.getHost()", "{url}.getHostname()", "{url}.getPort()"),
        *("{url}.getEscapedPath()", "string({ip})", "string({cidr})", "{strings}.min()"),
        *("{strings}.max()", "device.driver", "{bool} ? {string} : {string}", "string({dyn})"),
        *("string({uint})", "{strings}.last().orValue({string})"),
    ),
    "bytes": ("bytes({string})", "{bytes} + {bytes}"),
    "duration": ("{duration} + {duration}", "{timestamp} - {timestamp}", "duration({string})"),
    "timestamp": ("{timestamp} + {duration}", "{timestamp} - {duration}", "timestamp({int})"),
    "quantity": (
        *("quantity({string})", "{quantity}.add({quantity})", "{quantity}.sub({quantity})"),
        *("{quantity}.add({int})", "{quantity}.sub({int})", "quantity(string({int}))"),
        *("device.capacity[{domain}].{amount}", "device.capacity[{domain}][{name_text}]"),
    ),
    "semver": ("semver({string})", "semver({string}, {bool})"),
    "ip": ("ip({string})", "{cidr}.ip()"),
    "cidr": ("cidr({string})", "{cidr}.masked()"),
    "url": ("url({string})",),
    "format": (),
    "ints": (
        *("[{int}, {int}]", "{ints} + {ints}", "{ints}.map(x, x * {int})", "{nested}.flatten()"),
        *(
            "{ints}.filter(x, x > {int})",
            "{ints}.map(x, x > {int}, x + 1)",
            "{ints}.slice({int}, {int})",
        ),
        *("{ints}.distinct()", "{ints}.reverse()", "{ints}.sort()", "{ints}.sortBy(x, -x)"),
        *("lists.range({int} % 9)", "{ints}.transformList(i, x, i + x)", "{nested}[{int}]"),
        *("{ints}.transformList(i, x, x > {int}, i)", "{map}.transformList(k, v, v)"),
        "{nested}.flatten({int})",
    ),
    "strings": (
        *("[{string}, {string}]", "{string}.split({string})", "{string}.split({string}, {int})"),
        *("{string}.findAll({pattern})", "{string}.findAll({pattern}, {int})", "{strings}.sort()"),
        *("{strings}.map(s, s + {string})", "{strings}.sortBy(s, s.size())", "{strings}.reverse()"),
        *("{strings}.filter(s, s != {string})", "{strings}.distinct()", "{map}.map(k, k)"),
        *("{strings}.slice({int}, {int})", "[{string}, ?{optstring}]", "[?{optstring}]"),
        *("{url}.getQuery()[{string}]", "{format}.validate({string}).orValue([])"),
    ),
    "doubles": ("[{double}, {double}]",),
    "nested": ("[{ints}, {ints}]", "{ints}.map(x, [x])"),
    "map": (
        *(
            '{{"k": {int}, "a": {int} }}',
            "{map}.transformMap(k, v, v + {int})",
            '{{?"o": {optint} }}',
        ),
        *(
            "{map}.transformMap(k, v, v > {int}, v)",
            "{ints}.transformMap(i, x, x)[0] == 1 ? {map} : {map}",
        ),
        "{strings}.transformMapEntry(i, s, {{s: i }})",
    ),
    "optint": (
        *("{map}[?{string}]", "{ints}[?{int}]", "{optint}.or({optint})", "{ints}.first()"),
        *("optional.of({int})", "optional.ofNonZeroValue({int})", "{optint}.optMap(v, v + {int})"),
        *("{optint}.optFlatMap(v, optional.ofNonZeroValue(v))", "{ints}.last()", "{map}.?a"),
    ),
    "optstring": ("{strings}.first()", "optional.of({string})", "{optstring}.or({optstring})"),
    "dyn": (
        *("device.attributes[{domain}].{name}", "device.attributes[{domain}][{name_text}]"),
        *("device.attributes[{domain}].?{name}.orValue({int})", "dyn({int})", "dyn({string})"),
        *("device.attributes[{domain}].`{name}`", "dyn({type})", "dyn({optstring})"),
    ),
    "type": ("type({dyn})", "type({string})"),
}

_WORDS: dict[str, tuple[str, ...]] = {
    "domain": ('"gpu.example.com"', "device.driver", '"example.com"', '"nosuch"', "{string}"),
    "name": ("model", "index", "mig", "driverVersion", "links", "numa", "nosuch", "uuid"),
    "name_text": ('"model"', '"index"', '"tags"', '"nosuch"', '"memory"'),
    "amount": ("memory", "share", "slots", "nosuch"),
    "fields": (
        *("device.attributes[{domain}].{name}", "device.capacity[{domain}].{amount}"),
        *("device.attributes[{domain}].{name}", "device.{part}", "has({fields})"),
    ),
    "part": ("driver", "attributes", "capacity", "allowMultipleAllocations"),
    "pattern": (
        *(
            '"a"',
            '"^a.*$"',
            '"[A-Z]+\\\\d*"',
            'r"(\\w+),(\\w+)"',
            '"a|b"',
            '"(?i)A100"',
            '"x{{2,3}}"',
        ),
        *('"("', 'r"\\p{{L}}+"', '".*?b"', '"[^,]+"', '""', 'r"\\bh"', "{string}"),
    ),
    "template": (
        *('"%s and %s"', '"%d:%s"', '"%s %.2f"', '"%x/%s"', '"%e %s"', '"%b%o"', '"%% %s"', '"%s"'),
        *('"%d %d"', '"%s%s%s"', '"%.3e|%s"', '"%X %s"', '"plain"', '"%s %f"'),
    ),
}


def _with(
    given: dict[str, tuple[str, ...]], rare: dict[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    return {kind: given[kind] + rare.get(kind, ()) for kind in given}


LITERALS = _with(_LITERALS, rare_grammar.LITERALS)
TEMPLATES = _with(_TEMPLATES, rare_grammar.TEMPLATES)
WORDS = _with(_WORDS, rare_grammar.WORDS)
"""Holes that stand for words in an expression, not for a value of a type."""
