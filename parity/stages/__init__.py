"""What is compared beside the model itself: loss, update, schedule, dropout, fresh parameters."""
