"""What an interval and a retention bring and cost, before a training is started."""
