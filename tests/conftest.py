"""What holds for all property tests: none is timed, since machines are shared and slow at times,
and a fixture is made once for all examples."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "fettle",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("fettle")
