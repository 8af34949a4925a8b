"""The commands that speak to a cluster: ``kubectl combee status``, ``why``, ``logs`` and so on."""
