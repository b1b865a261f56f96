"""What the kubelet calls: registration, claims, health - gRPC over unix sockets."""
