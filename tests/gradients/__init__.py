"""Whether gradients are right: finite differences through the collectives, one rank against many, other programs."""
