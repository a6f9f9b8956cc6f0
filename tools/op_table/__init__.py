"""Which torch functions device code takes, proved against torch's own sample inputs."""
