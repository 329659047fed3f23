"""What Fettle changes in an object: `mutation` decides, the other modules make the edits."""
