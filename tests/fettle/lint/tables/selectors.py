"""Claims: classes and selectors, and devices asked for as extended resources."""

from tests.controlplane import objects as api
from tests.fettle.lint.fleets import GPU, MIG, NIC
from tests.fettle.lint.tables.case import (
    FLEET,
    Case,
    claim,
    device,
    exactly,
    first,
    option,
    template,
)

UNGUARDED = api.device_class("unguarded", selectors=[device('productName == "NVIDIA H100"')])
ASKS_FIRST = f'device.driver == "{GPU}"'

CASES = [
    Case(
        "FTL001",
        "a typo",
        claim(exactly(device_class="gpu.nvidia.co")),
        "does not exist",
        f"write {GPU}",
    ),
    Case("FTL001", "in a template", template(exactly(device_class="npu")), "existing: gpu.nvidia"),
    Case(
        "FTL001",
        "another kind of device is no typo",
        claim(exactly(device_class="vfio.gpu.nvidia.com")),
        "does not exist",
        "name one that exists",
    ),
    Case("FTL001", "a class that exists", claim(exactly())),
    Case(
        "FTL001",
        "an alternative is another rule's",
        claim(first("gpu", option("a", "nosuch"), option("b"))),
    ),
    Case(
        "FTL002",
        "one of two",
        claim(first("gpu", option("a"), option("b", "nosuch"))),
        "blocks the other alternatives",
    ),
    Case("FTL002", "both exist", claim(first("gpu", option("a"), option("b", MIG)))),
    Case(
        "FTL003",
        "a claim of a class without devices",
        claim(exactly(device_class=MIG)),
        "matches none of the 7 devices",
    ),
    Case(
        "FTL003",
        "a class of a driver that is not there",
        api.device_class("tpu", driver="tpu.example.com"),
        "matches none",
        possible=True,
    ),
    Case(
        "FTL003",
        "a class with a misspelt value",
        api.device_class("h100", selectors=[ASKS_FIRST, device('productName == "nvidia h100"')]),
        "matches none",
        "did you mean 'NVIDIA H100'?",
        severity="Deny",
    ),
    Case("FTL003", "a class with one device", api.device_class("other", driver=NIC)),
    Case(
        "FTL004",
        "a model that is not there",
        claim(exactly(selectors=[device('productName == "NVIDIA B200"')])),
        "0 of 6 devices in 2 pools of gpu.nvidia.com match",
    ),
    Case(
        "FTL004",
        "a model that is misspelt",
        claim(exactly(selectors=[device('productName == "Nvidia h100"')])),
        "0 of 6",
        "did you mean 'NVIDIA H100'?",
        severity="Deny",
    ),
    Case(
        "FTL004",
        "a model that is misspelt in one alternative, where another may come",
        claim(
            first(
                "gpu",
                option("a", selectors=[device('productName == "Nvidia h100"')]),
                option("b", selectors=[device('productName == "NVIDIA B200"')]),
            )
        ),
        "0 of 6",
        "did you mean 'NVIDIA H100'?",
    ),
    Case(
        "FTL004",
        "too much memory",
        claim(
            exactly(selectors=[f'device.capacity["{GPU}"].memory.compareTo(quantity("96Gi")) >= 0'])
        ),
        "nearest: memory 80Gi < 96Gi",
    ),
    Case(
        "FTL004",
        "in every alternative",
        claim(
            first("gpu", *(option(n, selectors=[device(f'productName == "{n}"')]) for n in "ab"))
        ),
        "0 of 6",
    ),
    Case(
        "FTL004",
        "what is not there, though the selector fails on some devices",
        claim(
            exactly(
                selectors=[
                    f"{device('index')} == 1 ? {device('nosuch')} == 1 : {device('index')} < 0"
                ]
            )
        ),
        "0 of 6",
    ),
    Case(
        "FTL004",
        "one alternative is there",
        claim(first("gpu", option("a", selectors=[device('productName == "B200"')]), option("b"))),
    ),
    Case(
        "FTL004",
        "a model that is there",
        claim(exactly(selectors=[device('productName == "NVIDIA A100"')])),
    ),
    Case(
        "FTL004",
        "a class without devices is another rule's",
        claim(exactly(device_class=MIG, selectors=[device("index > 9")])),
    ),
    Case(
        "FTL005",
        "an attribute that no device has",
        claim(exactly(selectors=[device('model == "H100"')])),
        "fails on 6 of 6",
        severity="Deny",
    ),
    Case(
        "FTL005",
        "an attribute that no device has, and what to do",
        claim(exactly(selectors=[device('model == "H100"')])),
        "no such key",
        "first test for what a device may lack",
        severity="Deny",
    ),
    Case(
        "FTL005",
        "an attribute of older releases of the driver, as a node of another release may have",
        claim(exactly(selectors=[device('pcieBusID == "0000:3b:00.0"')])),
        "no such key: pcieBusID",
    ),
    Case(
        "FTL005",
        "a capacity that the driver may be set to publish",
        claim(
            exactly(selectors=[f'device.capacity["{GPU}"].shares.compareTo(quantity("2")) >= 0'])
        ),
        "no such key: shares",
        f'has(device.capacity["{GPU}"].shares)',
    ),
    Case(
        "FTL005",
        "an attribute of another kind of device",
        claim(exactly(selectors=[device('profile == "1g.5gb"')])),
        "no such key: profile",
    ),
    Case(
        "FTL005",
        "what another value would make it skip",
        claim(
            exactly(
                selectors=[f"{device('productName')} == 'NVIDIA B200' || {device('model')} == 'x'"]
            )
        ),
        "no such key: model",
    ),
    Case(
        "FTL005",
        "a value of another type, and what to do",
        claim(exactly(selectors=[device('driverVersion > "550.1.2"')])),
        "no such overload",
        "versions are compared with semver(…).compareTo",
        severity="Deny",
    ),
    Case(
        "FTL005",
        "guarded by has()",
        claim(exactly(selectors=[f"has({device('productName')}) && {device('index')} >= 0"])),
    ),
    Case(
        "FTL005",
        "in a class, on devices of its driver",
        api.device_class("h100", selectors=[ASKS_FIRST, device('model == "H100"')]),
        "fails on 6 of 6",
        severity="Deny",
    ),
    Case(
        "FTL005",
        "in a class, on other drivers' devices, which is another rule's",
        UNGUARDED,
    ),
    Case(
        "FTL006",
        "a version compared as text",
        claim(exactly(selectors=[device('driverVersion > "550.1.2"')])),
        "no such overload",
        severity="Deny",
    ),
    Case(
        "FTL006",
        "a number compared with text in a class",
        api.device_class("third", selectors=[ASKS_FIRST, device('index == "3"')]),
        "compares gpu.nvidia.com/index with a string",
        severity="Deny",
    ),
    Case(
        "FTL006",
        "a number compared with text",
        claim(exactly(selectors=[device('index == "3"')])),
        "compares gpu.nvidia.com/index with a string, which it never equals: devices publish a "
        "number",
        "numbers and booleans without",
        severity="Deny",
    ),
    Case(
        "FTL006",
        "text compared with numbers in a list",
        claim(exactly(selectors=[device("productName in [100, 200]")])),
        "compares gpu.nvidia.com/productName with a number, which it never equals",
        severity="Deny",
    ),
    Case(
        "FTL006",
        "a version compared for equality with text",
        claim(exactly(selectors=['"550.54.15" == ' + device("driverVersion")])),
        "with a string, which it never equals: devices publish a version",
        severity="Deny",
    ),
    Case(
        "FTL006",
        "a comparison that need not hold",
        claim(exactly(selectors=[device('index == "3" || ') + device('productName == "B200"')])),
        "with a string, which it never equals",
    ),
    Case(
        "FTL006",
        "in one alternative, where another may come",
        claim(
            first(
                "gpu",
                option("a", selectors=[device('index == "3"')]),
                option("b", selectors=[device("index == 99")]),
            )
        ),
        "with a string, which it never equals",
        possible=True,
    ),
    Case(
        "FTL006",
        "a number compared with a number of another type",
        claim(exactly(selectors=[device("index == 1.0 || ") + device("index == 2u")])),
    ),
    Case(
        "FTL006",
        "both types, for drivers that publish either",
        claim(exactly(selectors=[device('index == "1" || ') + device("index == 1")])),
    ),
    Case(
        "FTL006",
        "a type that it asks for first",
        claim(
            exactly(
                selectors=[
                    f'type({device("index")}) == string ? {device("index")} == "1" : '
                    f"{device('index')} == 2"
                ]
            )
        ),
    ),
    Case(
        "FTL006",
        "an attribute that no device has, beside one that some have",
        claim(exactly(selectors=[device("index == 1 || ") + device('slot == "a"')])),
    ),
    Case(
        "FTL006",
        "a default of another type",
        claim(exactly(selectors=[f'device.attributes["{GPU}"].?index.orValue("none") != "none"'])),
    ),
    Case(
        "FTL006",
        "a version compared as a version",
        claim(exactly(selectors=[device('driverVersion.compareTo(semver("550.1.2")) >= 0')])),
    ),
    Case(
        "FTL007",
        "a domain with a typo in a class",
        api.device_class(
            "c", selectors=[f'{ASKS_FIRST} && device.attributes["gpu.nvidia.co"].index == 1']
        ),
        "no device has attributes in the domain",
        f"did you mean {GPU}?",
        severity="Deny",
    ),
    Case(
        "FTL007",
        "a class of a driver that is not there yet",
        api.device_class("tpu", driver="tpu.example.com"),
    ),
    Case(
        "FTL007",
        "the domain of a driver that its class asks for and that is not there",
        claim(
            exactly(
                device_class="tpu",
                selectors=['device.attributes["tpu.example.com"].topology == "2x2"'],
            )
        ),
        known=(*FLEET, api.device_class("tpu", driver="tpu.example.com")),
    ),
    Case(
        "FTL007",
        "a domain with a typo",
        claim(exactly(selectors=['device.attributes["gpu.nvidia.co"].index == 1'])),
        "no device has attributes in the domain",
        f"did you mean {GPU}?",
        severity="Deny",
    ),
    Case(
        "FTL007",
        "a domain that it asks for first, which other clusters have",
        claim(
            exactly(
                selectors=[
                    '"gpu.amd.com" in device.attributes ? '
                    'device.attributes["gpu.amd.com"].index == 1 : true'
                ]
            )
        ),
    ),
    Case(
        "FTL007",
        "a domain with a typo that it asks for first",
        claim(
            exactly(
                selectors=[
                    '"gpu.nvidia.co" in device.attributes && '
                    'device.attributes["gpu.nvidia.co"].index == 1'
                ]
            )
        ),
        "no device has attributes in the domain",
        f"did you mean {GPU}?",
        severity="Deny",
    ),
    Case(
        "FTL007",
        "a name with a typo",
        claim(exactly(selectors=[device('productname == "x"')])),
        "productname",
        "did you mean productName?",
        severity="Deny",
    ),
    Case(
        "FTL007",
        "a name that newer drivers may have",
        claim(exactly(selectors=[f'has({device("fabric")}) && {device("fabric")} == "x"'])),
    ),
    Case(
        "FTL007",
        "a domain of attributes that no capacity is in",
        claim(
            exactly(
                selectors=['device.capacity["resource.kubernetes.io"].pcieRoot == quantity("1")']
            )
        ),
        "no device has capacity in the domain 'resource.kubernetes.io' (existing: gpu.nvidia.com)",
        severity="Deny",
    ),
    Case(
        "FTL007",
        "a capacity with a typo",
        claim(exactly(selectors=[f'device.capacity["{GPU}"].memroy.isInteger()'])),
        "no device has capacity gpu.nvidia.com/memroy",
        "did you mean memory?",
        severity="Deny",
    ),
    Case(
        "FTL007",
        "a capacity of a driver whose devices have none",
        claim(
            exactly(
                selectors=[
                    f'device.driver != "{NIC}" || device.capacity["{NIC}"].bandwidth.isInteger()'
                ]
            )
        ),
    ),
    Case(
        "FTL007",
        "a domain that is there",
        claim(
            exactly(selectors=['device.attributes["resource.kubernetes.io"].pcieRoot == "pci0"'])
        ),
    ),
    Case(
        "FTL008",
        "reads before it knows the driver",
        UNGUARDED,
        "fails on 1 of 7",
        "begin with device.driver",
    ),
    Case(
        "FTL008",
        "asks for the driver first",
        api.device_class(
            "h100",
            selectors=[f'device.driver == "{GPU}" && {device("productName")} == "NVIDIA H100"'],
        ),
    ),
    Case(
        "FTL041",
        "by name and by claim",
        api.pod(
            "p",
            templates={"gpu": "t"},
            gpus=1,
            resource=f"deviceclass.resource.kubernetes.io/{GPU}",
        ),
        "whose devices a claim of this pod requests too",
        known=(*FLEET, template(exactly())),
    ),
    Case(
        "FTL041",
        "another class",
        api.pod(
            "p",
            templates={"gpu": "t"},
            gpus=1,
            resource=f"deviceclass.resource.kubernetes.io/{NIC}",
        ),
        known=(*FLEET, template(exactly())),
    ),
    Case(
        "FTL042",
        "a name that is taken",
        api.device_class("b", extended_resource="example.com/gpu"),
        "DeviceClass a has the same",
        known=(api.device_class("a", extended_resource="example.com/gpu"),),
    ),
    Case(
        "FTL042",
        "a name of its own",
        api.device_class("b", extended_resource="example.com/b"),
        known=(api.device_class("a", extended_resource="example.com/gpu"),),
    ),
    Case(
        "FTL043",
        "evicts, where a class has an extended resource",
        api.device_taint_rule("r", "example.com/bad", "NoExecute"),
        "are not evicted",
        known=(api.device_class("a", extended_resource="example.com/gpu"),),
    ),
    Case(
        "FTL043",
        "only keeps off",
        api.device_taint_rule("r", "example.com/bad", "NoSchedule"),
        known=(api.device_class("a", extended_resource="example.com/gpu"),),
    ),
    Case(
        "FTL057",
        "two models at once",
        claim(
            exactly(
                selectors=[device('productName == "NVIDIA H100"'), device('productName == "B200"')]
            )
        ),
        "wants gpu.nvidia.com/productName to be NVIDIA H100 and B200 at once",
        "join alternatives with ||",
    ),
    Case(
        "FTL057",
        "another type than that of its class",
        claim(exactly(device_class=MIG, selectors=[device('type in ["gpu", "vfio"]')])),
        "wants gpu.nvidia.com/type to be mig and gpu, vfio at once",
    ),
    Case(
        "FTL057",
        "another driver than that of its class",
        claim(exactly(selectors=[f'device.driver == "{NIC}"'])),
        "asks for devices of gpu.nvidia.com and of net.example.com at once",
    ),
    Case(
        "FTL057",
        "in a class",
        api.device_class(
            "c",
            selectors=[
                f'device.driver == "{GPU}"',
                device("index == 1 && ") + device("index == 2"),
            ],
        ),
        "to be 1 and 2 at once",
    ),
    Case(
        "FTL057",
        "in one alternative of two",
        claim(
            first(
                "gpu",
                option("a", selectors=[device("index == 1 && ") + device("index == 2")]),
                option("b"),
            )
        ),
        "at once",
        severity="Warn",
    ),
    Case(
        "FTL057",
        "one model or another",
        claim(
            exactly(
                selectors=[
                    device('productName == "NVIDIA H100" || ') + device('productName == "B200"'),
                    device('productName != "NVIDIA A100"'),
                    device("index == 1 || ") + device("index == 2"),
                    device("index in [2, 3]"),
                ]
            )
        ),
    ),
]
