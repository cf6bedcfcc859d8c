"""A machine by name, with what-ifs: 8xa100-80, 2x8xh100, dgx-h100, this, my.toml."""
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

from minitp.errors import ConfigError
from minitp.plan.catalogue.devices import devices, shipped
from minitp.plan.catalogue.machine_files import THIS, machines_folder, read_machines
from minitp.plan.data_file import shown, unknown
from minitp.plan.links import Link, link
from minitp.plan.machine import MOST_DEVICES, Level, Machine, check_devices
from minitp.plan.units import both, parse_bytes, parse_rate, rate
from minitp.trace.wording import count, plain

FILE = Path(__file__).parent / "machines.toml"
GRAMMAR = "; or N devices as 4xh100, boxes of them as 2x8xh100, a file.toml"
LEAST_MEMORY = 10**6               # bytes: below, a unit was forgotten
_NAME = re.compile(r"((?:[1-9][0-9]{0,5}x){0,2})([a-z0-9][a-z0-9._+-]*)", re.ASCII)
_COUNTS = re.compile(r"(?:^|(?<=[0-9]x))([0-9]+)x", re.ASCII)


@cache
def _shipped() -> tuple[dict[str, Machine], dict[str, str]]:
    return read_machines(FILE)


def machines() -> dict[str, Machine]:
    """The catalogue's machines by name, and the user's own that can be read."""
    found = dict(_shipped()[0])
    for path in own_files():
        try:
            found.setdefault(path.stem, _own(path))
        except ConfigError:
            continue                      # it is named where somebody asks for it
    return found


def own_files() -> list[Path]:
    """The user's machine files, in order."""
    try:
        return sorted(machines_folder().glob("*.toml"))
    except OSError:
        return []


def machine(name_or_path: str | Path, *, devices: int | None = None, memory: str | int | None = None,
            bandwidth: str | float | None = None, link: str | Link | None = None, between: str | Link | None = None,
            ports: int | None = None) -> Machine:
    """A machine by name, grammar or file, changed by the what-ifs.

    devices    how many in all: boxes are filled and joined
    memory     of each device, by its name and in fact: "1TB". The note tells what it has without the what-if
    bandwidth  of that memory, "4 TB/s"
    link       inside a box, between: boxes; names of links or "α,rate". Measured tables of a level end with its link
    ports      links of `between` that the devices of a box share; 0: one for each

    The name tells what was changed, so that no table hides it.
    """
    found, told = _found(name_or_path), []
    if link is not None:
        found = replace(found, levels=(_linked(found.levels[0], link), *found.levels[1:]))
        told.append(f"{found.levels[0].name} inside")
    if between is not None or ports is not None:
        found = _joined(found, between, ports)
        told.append(f"{found.levels[-1].name} between" + (f" ({count(ports, 'port')})" if ports else ""))
    if memory is not None or bandwidth is not None:
        found = _with_device(found, memory, bandwidth)
    if devices is not None and devices != found.devices:
        check_devices(_positive(devices))
        found = _sized(found, devices)
        told.append(count(found.devices, "device"))
    return replace(found, name=f"{found.name} with {', '.join(told)}") if told else found


def _sized(machine: Machine, devices: int) -> Machine:
    """As many devices: of computers on one switch more on that switch, else boxes are filled and joined."""
    housing = shipped()[1].get(machine.device.name)
    if len(machine.levels) == 1 and housing and not housing.box:
        return replace(machine, levels=(replace(machine.levels[0], size=devices),))
    return machine.with_devices(devices)


def _found(name_or_path: str | Path) -> Machine:
    """The machine as it is described."""
    text = str(name_or_path).strip()
    if isinstance(name_or_path, Path) or text.lower().endswith(".toml"):
        return _own(Path(text).expanduser())
    key = text.lower()
    own = {path.stem.lower(): path for path in own_files()}
    if key == THIS and THIS not in own:
        raise ConfigError(f"{machines_folder() / 'this.toml'} isn't there yet: `minitp plan calibrate` measures this "
                          "machine and writes it")
    named, aliases = _shipped()
    if aliases.get(key, key) in named:
        return named[aliases.get(key, key)]
    if key in own:
        return _own(own[key])
    return _composed(key, text)


def _composed(key: str, text: str) -> Machine:
    """4xh100: four in a box. 2x8xh100: two boxes of eight. 2xdgx-h100: two of them."""
    parts = _NAME.fullmatch(key)
    named, aliases = _shipped()
    everything = [*named, *(path.stem for path in own_files()), *devices()]
    if counted := [digits for digits in _COUNTS.findall(key) if not 1 <= int(digits[:20]) < 10**6]:
        raise ConfigError(f"{counted[0][:20]} is no number of devices, in {plain(text, 60)!r}: 1 to {MOST_DEVICES:,} "
                          "can be planned with")
    if not parts:
        raise unknown("machine", text, everything, GRAMMAR)
    numbers, base = [int(part) for part in parts[1].split("x")[:-1]], parts[2]
    if base in shipped()[0]:
        boxes, inside = (numbers if len(numbers) == 2 else [0, *(numbers or [1])])
        return _of_device(base, boxes, inside)
    known = aliases.get(base, base)
    if known in named and len(numbers) == 1:
        return replace(named[known].with_devices(numbers[0] * named[known].devices), name=text)
    raise unknown("machine", text, everything, GRAMMAR)


def _of_device(base: str, boxes: int, inside: int) -> Machine:
    """`inside` devices in each of `boxes` boxes; with 0 boxes `inside` devices in as many boxes as they fill."""
    device = shipped()[0][base]
    housing = shipped()[1][device.name]
    usual = _shipped()[0].get(f"{housing.box}x{device.name}")
    if usual is None:
        size = housing.box or inside
        outer = Level(housing.between, 1, link(housing.between), housing.ports)
        usual = Machine(f"{size}x{device.name}", device,
                        (Level(housing.inside, size, link(housing.inside)), *([outer] if housing.box or boxes else [])),
                        device.source, note=f"put together as is usual: {housing.inside}, {housing.between}")
    name = f"{boxes}x{inside}x{device.name}" if boxes else f"{inside}x{device.name}"
    if not boxes:
        return replace(usual.with_devices(inside), name=name)
    first = replace(usual.levels[0], size=inside)
    return replace(replace(usual, levels=(first, *usual.levels[1:])).with_devices(boxes * inside), name=name)


def _own(path: Path) -> Machine:
    """The machine of a user's file: its only one, or the one that is called like the file."""
    found, _ = read_machines(path)
    if len(found) == 1:
        return next(iter(found.values()))
    if path.stem in found:
        return found[path.stem]
    raise ConfigError(f"{shown(path)} must have one [[machine]], or one with the name {plain(path.stem, 60)!r}; it has "
                      + (plain(", ".join(found)) or "none"))


def _linked(level: Level, name: str | Link) -> Level:
    chosen = name if isinstance(name, Link) else link(name)
    return Level(chosen.name, level.size, chosen, level.ports)


def _joined(machine: Machine, name: str | Link | None, ports: int | None) -> Machine:
    """Another link between boxes, or the first one where there was none."""
    inner, *outer = machine.levels
    if not outer and name is None:
        raise ConfigError(f"{machine.name} has no network between machines whose ports could be set: name one with "
                          "--between")
    changed = [_linked(level, name) for level in outer] if name is not None else outer
    if not outer and name is not None:
        changed = [_linked(Level("", 1, inner.link), name)]
    if ports is not None:
        changed = [replace(level, ports=ports) for level in changed]
    return replace(machine, levels=(inner, *changed))


def _with_device(machine: Machine, memory: str | int | None, bandwidth: str | float | None) -> Machine:
    """The same with another memory, which is told in the device's name and the machine's note."""
    device, usual, told = machine.device, machine.device, []
    if memory is not None:
        size = parse_bytes(memory)
        if size < LEAST_MEMORY:
            raise ConfigError(f"a device with {count(size, 'byte')} of memory can't be planned with: write its size "
                              "with a unit, as 80GB or 192GiB")
        device = device.with_memory(size)
        told.append(f"{both(device.memory)} of memory, by its name and in fact, where the {usual.name} has "
                    f"{both(usual.memory)} by its name and {both(usual.memory_real)} in fact")
    if bandwidth is not None:
        faster = parse_rate(bandwidth)
        if not faster > 0:
            raise ConfigError("a bandwidth must be above 0")
        joined = ", " if memory is not None else " with "
        device = replace(device, bandwidth=faster, name=f"{device.name}{joined}{rate(faster)}")
        told.append(f"{rate(faster)} of memory bandwidth, where the {usual.name} has {rate(usual.bandwidth)}")
    note = f"what if a device had {'; and '.join(told)}"
    return replace(machine, device=device, note=f"{machine.note}; {note}" if machine.note else note)


def _positive(number: int) -> int:
    if number < 1:
        raise ConfigError(f"must be at least 1, got {number}")
    return number
