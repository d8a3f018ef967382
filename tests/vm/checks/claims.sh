# init: script
# limit: 3600
# shows: claims for somebody else, predicted and of packets
run_railyard claims --run fabric-cost mesh opus-delay straggler-h100 rails-recovery-200 --out /mnt/results/claims
railyard claims --compare /mnt/results/claims
