"""The planner's catalogue: models, devices, machines, links and published runs, from data files with a source per row.

What a name means is looked up here and nowhere else. A user's files have the same form as the shipped ones.
"""
from minitp.plan.catalogue.devices import device, devices
from minitp.plan.catalogue.machine_files import THIS, machines_folder, this_file, write_machine
from minitp.plan.catalogue.machines import machine, machines
from minitp.plan.catalogue.models import model, models
from minitp.plan.catalogue.runs import PublishedRun, run, runs
from minitp.plan.links import link, links, switches

__all__ = ["THIS", "PublishedRun", "device", "devices", "link", "links", "machine", "machines", "machines_folder",
           "model", "models", "run", "runs", "switches", "this_file", "write_machine"]
