"""Configurations of kube-schedulers, as people write them, and ones that cannot be used."""

HEAD = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
"""
OTHER = """\
- urlPrefix: "http://127.0.0.1:9999/scheduler"  # somebody else's
  filterVerb: filter
  bindVerb: bind
  ignorable: true
  managedResources:
  - {name: hami.io/vgpu,   ignoredByScheduler: true}
  # - name: hami.io/vmem
"""
COMMENTED = f"""\
# Ours. Ask the platform team before you change it: ü, 日本, 😀
---
{HEAD}\
clientConnection: {{kubeconfig: /etc/kubernetes/scheduler.conf}}   # its account

leaderElection:
    leaderElect:   true
# All of them, see below.
extenders:
  # The first one.
  - urlPrefix: http://127.0.0.1:7777
    prioritizeVerb: 'prioritize'
    weight: 1
    # its own: nobody touches this
      # and deeper

    # after a blank line

# Profiles come last.
profiles:
    -   schedulerName: default-scheduler   # as everywhere
        pluginConfig:
            - name: NodeResourcesFit
              args: {{scoringStrategy: {{type: MostAllocated,   resources: [{{name: cpu}}]}}}}
# the end
"""
USABLE = {
    "nothing but its kind": HEAD,
    "one profile": f"{HEAD}profiles:\n- schedulerName: default-scheduler\n",
    "three profiles": f"""\
{HEAD}\
profiles:
  - schedulerName: default-scheduler
  - schedulerName: bin-packing
    plugins:
      score:
        disabled: [{{name: NodeResourcesBalancedAllocation}}]
  - schedulerName: "no-scoring"
parallelism: 4
""",
    "another extender": f"{HEAD}extenders:\n{OTHER}profiles: [{{schedulerName: one}}]\n",
    "another extender at the end": f"{HEAD}extenders:\n{OTHER}",
    "comments": COMMENTED,
    "flow style": f"{HEAD}extenders: [{{urlPrefix: http://127.0.0.1:9999, filterVerb: f}}] # one\n",
    "all in flow style": (
        "# ours\n{apiVersion: kubescheduler.config.k8s.io/v1,\n"
        "  kind: KubeSchedulerConfiguration, # this\n  parallelism: 4}\n"
    ),
    "JSON": (
        '{\n  "apiVersion": "kubescheduler.config.k8s.io/v1",\n'
        '  "kind": "KubeSchedulerConfiguration",\n'
        '  "extenders": [\n    {"urlPrefix": "http://127.0.0.1:9999", "filterVerb": "f"}\n  ]\n}\n'
    ),
    "tabs where they may be": f"{HEAD}parallelism: 4\t# as many\n",
    "a byte order mark of Windows": f"\ufeff# ours\n{HEAD}extenders:\n{OTHER}parallelism: 4\n",
    "a byte order mark alone": f"\ufeff{HEAD}",
    "line breaks of Windows": COMMENTED.replace("\n", "\r\n"),
    "no line break at the end": f"{HEAD}extenders:\n{OTHER}profiles:\n- schedulerName: a".rstrip(),
    "an anchor that is not in the way": f"""\
{HEAD}\
profiles:
  - schedulerName: default-scheduler
    plugins: &ours
      score: {{disabled: [{{name: ImageLocality}}]}}
  - schedulerName: second
    plugins: *ours
parallelism: 4
""",
    "a separator at the end": f"{HEAD}parallelism: 4\n---\n",
    "the end is marked": f"{HEAD}parallelism: 4\n...\n",
}
"""By what is special in them. kube-scheduler starts with each."""
EMPTY = {
    "extenders are an empty list": f"{HEAD}extenders: []  # none yet\nparallelism: 4\n",
    "extenders are null": f"{HEAD}extenders:  # none yet\nparallelism: 4\n",
    "extenders are written as null": f"{HEAD}extenders: null\nparallelism: 4\n",
}
"""Without an extender, though with the word."""
_TWICE = f"{HEAD}extenders:\n- urlPrefix: http://a\n  managedResources: [{{name: a.b/c}}]\n"
REFUSED = {
    "no YAML": (f"{HEAD}extenders: [", "line 4: invalid YAML"),
    "indented by tabs": (f"{HEAD}extenders:\n\t- urlPrefix: http://a\n", "line 4: invalid YAML"),
    "nothing": ("", "it contains no object"),
    "comments alone": ("# nothing\n", "it contains no object"),
    "a list": ("- a\n- b\n", "it is no KubeSchedulerConfiguration, but a list"),
    "a word": ("scheduler\n", "it is no KubeSchedulerConfiguration, but the value 'scheduler'"),
    "YAML that begins as JSON does": (
        "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration}\n",
        "it begins with {, so kube-scheduler reads it as JSON, and line 1: invalid JSON",
    ),
    "an empty document first": (f"---\n---\n{HEAD}", "its first document is empty"),
    "two documents": (f"{HEAD}---\n{HEAD}", "it has 2 documents"),
    "a static pod": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: kube-scheduler}\n",
        "it is a Pod, no KubeSchedulerConfiguration: give the file that kube-scheduler's flag "
        "--config names",
    ),
    "no kind": ("apiVersion: kubescheduler.config.k8s.io/v1\n", "it has no kind"),
    "no apiVersion": ("kind: KubeSchedulerConfiguration\n", "it has no apiVersion"),
    "an old apiVersion": (
        HEAD.replace("/v1\n", "/v1beta3\n"),
        "its apiVersion is kubescheduler.config.k8s.io/v1beta3, and kube-scheduler has read only "
        "kubescheduler.config.k8s.io/v1 since Kubernetes 1.29",
    ),
    "a key twice": (f"{HEAD}extenders: []\nextenders: []\n", "line 4: extenders is there twice"),
    "extenders that are no list": (f"{HEAD}extenders: {{a: 1}}\n", "extenders is a mapping: write"),
    "an extender that is no mapping": (f"{HEAD}extenders: [a]\n", "extenders[0] is the value 'a'"),
    "an extender without a URL": (f"{HEAD}extenders: [{{weight: 1}}]\n", "[0] has no urlPrefix"),
    "resources that are no list": (
        f"{HEAD}extenders: [{{urlPrefix: http://a, managedResources: gpu}}]\n",
        "extenders[0].managedResources is the value 'gpu': write a list",
    ),
    "a resource without a name": (
        f"{HEAD}extenders: [{{urlPrefix: http://a, managedResources: [{{nmae: gpu}}]}}]\n",
        "extenders[0].managedResources[0] has no name",
    ),
    "a resource of two extenders": (
        f"{_TWICE}{_TWICE.partition('extenders:')[2].lstrip()}".replace("http://a", "http://b", 1),
        "managedResources has a.b/c twice, under http://b and http://a",
    ),
    "two entries for Fettle": (
        f"{HEAD}extenders: [{{urlPrefix: http://127.0.0.1:8088}}, {{urlPrefix: https://f,"
        " managedResources: [{name: fettle.dev/claims}]}]\n",
        "extenders[0] and extenders[1] both lead to Fettle: take one out",
    ),
    "a connection that is no mapping": (
        f"{HEAD}clientConnection: here\n",
        "clientConnection is the value 'here': write a mapping",
    ),
    "profiles that are no list": (f"{HEAD}profiles: default\n", "profiles is the value 'default'"),
    "an alias where the entry goes": (
        f"{HEAD}profiles: &none\n- schedulerName: a\nextenders: *none\n",
        "extenders[0] has no urlPrefix",
    ),
}
"""With what is said of each."""
