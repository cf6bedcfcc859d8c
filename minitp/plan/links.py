"""Links between ranks as two numbers each: Hockney's latency α (s per message) and bandwidth 1/β (bytes per s).

Real links need more than two numbers: protocols change with the size of a message, so between about 128 KiB and 256 MiB
such a pair is up to 60 % too fast where it was fitted to both ends. Treat what is computed from them as a model.
"""
from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """What one rank sees of the network: a message of n bytes takes latency_s + n / bytes_per_s, either way."""
    name: str
    latency_s: float
    bytes_per_s: float
    source: str

    def seconds(self, size: float) -> float:
        """One message of `size` bytes: Hockney's α + nβ."""
        return self.latency_s + size / self.bytes_per_s


LINKS = (
    Link("NVLink", 1.5e-6, 235e9,
         "8 × A100, NVLink 3: 235 GB/s all-reduce bus bandwidth measured with nccl-tests (ml-engineering, network "
         "chapter), of 300 in the specification; 0.6 to 3.4 µs a hop in NCCL's own model (src/graph/tuning.cc)"),
    Link("RDMA, InfiniBand HDR", 5e-6, 25e9,
         "200 Gb/s a port in the specification; 2.7 to 14 µs a network step in NCCL's own model (src/graph/tuning.cc)"),
    Link("10 GbE", 30e-6, 1.25e9,
         "10 Gb/s in the specification; MPI over TCP takes 20 to 60 µs a message: an assumption, measure your own"),
    Link("1 GbE", 60e-6, 0.118e9,
         "1 Gb/s less the frames' overhead; MPI over TCP takes 20 to 60 µs a message: an assumption, measure your own"),
)
"""From the fastest to the slowest. Per direction and rank."""
