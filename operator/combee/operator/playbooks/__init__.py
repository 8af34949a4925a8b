"""The Playbook half of the operator: one tick reads versions, decides, delivers."""
