"""What holds for all tests: Hypothesis measures no wall time, since the machine may be busy with something else."""

from hypothesis import HealthCheck, settings

settings.register_profile("tidelog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tidelog")
