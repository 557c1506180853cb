"""adversarial-robustness-toolbox: KnockoffNets."""

from art_thief import main

main("KnockoffNets")
