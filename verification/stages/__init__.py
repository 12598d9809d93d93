"""What is compared beside the model itself: losses, updates, rates, dropout, what is read."""
