"""Benchmarks: `python -m tests.bench [section...]` prints one table and writes build/bench.json.

Contestants alternate within one run and figures are medians, so that what else the machine does
meets all of them. Sections run Fettle as users do, its own process over HTTP, except `verdicts`,
which times the core in this process.

Sections that try random cases, or repeat some for long, try as many as `FETTLE_<SECTION>_CASES`
says, by default few enough to keep a run short:

    FETTLE_ORACLE_CASES=1000000     random claims and selectors, asked of Kubernetes too (4000)
    FETTLE_MUTANTS_CASES=1000000    mutated AdmissionReviews (20000)
    FETTLE_ADMISSION_CASES=200000   reviews of the soak, after which memory must be flat (200000)
"""
