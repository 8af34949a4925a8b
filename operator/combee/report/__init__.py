"""The result of a run (``result``), its schema (``schema``) and its report (``build``). Import the parts."""
